"""What measures and trains: the training of all models, the experiments that chapters draw, and the benchmark."""
