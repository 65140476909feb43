"""Ask an engine what it draws from, with a model whose logits are one fixed row after every token.

    python _ask_engines.py ENGINE FOLDER < questions.json > answers.json

It runs in an environment with this engine, and imports nothing of this package. A question is ``{"logits": [...],
"prompt": [...], "settings": {...}, "draws": n}``, and the answer to it one of

- ``{"probs": {token: probability}}``, if the engine reports the distribution that it draws from;
- ``{"counts": {token: count}}``, of `draws` tokens;
- ``{"text": [...]}``, the tokens of a greedy text, or of a seeded one with the distributions before each in "probs";
- ``{"texts": [[...], ...], "scores": [...]}``, the best texts of a beam search, if it asks for beams. Instead of its
  logits, it has a "table": a row for each last token.

`settings.py` has the questions.
"""

import json
import os
import sys
from collections import Counter

import numpy as np

END = 2


def counted(tokens):
    return {"counts": {str(token): count for token, count in sorted(Counter(map(int, tokens)).items())}}


def llama_cpp(questions, folder):
    import gguf
    import xllamacpp

    def server(row, path):
        """A Llama whose layer adds nothing: after every token, the logits are this row."""
        size = len(row)
        zero, one = np.zeros((size, size), np.float32), np.ones(size, np.float32)
        writer = gguf.GGUFWriter(path, "llama")
        for add, value in (
            (writer.add_block_count, 1), (writer.add_context_length, 256), (writer.add_vocab_size, size),
            (writer.add_embedding_length, size), (writer.add_feed_forward_length, size), (writer.add_head_count, 1),
            (writer.add_layer_norm_rms_eps, 1e-9), (writer.add_tokenizer_model, "llama"),
            (writer.add_token_scores, [0.0] * size), (writer.add_token_types, [2, 3, 3] + [1] * (size - 3)),
            (writer.add_token_list, ["<unk>", "<s>", "</s>"] + [chr(94 + token) for token in range(3, size)]),
        ):  # fmt: skip
            add(value)
        writer.add_tensor("token_embd.weight", np.eye(size, dtype=np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            writer.add_tensor(f"blk.0.{name}.weight", zero)
        for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
            writer.add_tensor(name + ".weight", one)
        writer.add_tensor("output.weight", np.repeat(np.float32(row)[:, None] / size**0.5, size, 1))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.warmup, params.verbosity = path, 256, 1, False, -1
        return xllamacpp.Server(params)

    servers, answers = {}, []
    for question in questions:
        row = tuple(question["logits"])
        if row not in servers:
            servers[row] = server(row, f"{folder}/{len(servers)}.gguf")
        settings = dict(question["settings"])
        if "logit_bias" in settings:
            settings["logit_bias"] = [[int(token), value] for token, value in settings["logit_bias"].items()]
        steps = question.get("steps", 1)
        answer = servers[row].handle_completions({
            "prompt": question["prompt"], "n_predict": steps, "n_probs": len(row), "post_sampling_probs": True,
            "seed": 1, "dry_sequence_breakers": ["|"], **settings,
        })  # fmt: skip
        if "choices" not in answer:
            raise ValueError(f"{settings}: {answer}")
        content = answer["choices"][0]["logprobs"]["content"]
        rows = [{str(top["id"]): top["prob"] for top in one["top_probs"] if top["prob"] > 1e-9} for one in content]
        answers.append({"probs": rows[0]} if steps == 1 else {"text": [one["id"] for one in content], "probs": rows})
    return answers


def mlx_lm(questions, folder):
    import mlx.core as mx
    from mlx_lm.sample_utils import make_logits_processors, make_sampler

    answers, of_processors = [], ("logit_bias", "repetition", "presence", "frequency")
    mx.random.seed(0)
    for question in questions:
        settings = question["settings"]
        mine = {name: value for name, value in settings.items() if name.startswith(of_processors)}
        if "logit_bias" in mine:
            mine["logit_bias"] = {int(token): value for token, value in mine["logit_bias"].items()}
        sampler = make_sampler(**{name: value for name, value in settings.items() if name not in mine})
        rows = 1 if "xtc_probability" in settings else question["draws"]  # its coin is thrown once a call
        drawn = []
        for _ in range(question["draws"] // rows):
            logits = mx.array([question["logits"]] * rows)
            for change in make_logits_processors(**mine):
                logits = change(mx.array(question["prompt"]), logits)
            drawn += sampler(logits - mx.logsumexp(logits, axis=-1, keepdims=True)).tolist()
        answers.append(counted(drawn))
    return answers


def ctranslate2(questions, folder):
    import ctranslate2 as engine
    from ctranslate2.specs import TransformerDecoderModelSpec

    answers, known = [], None
    engine.set_random_seed(1)
    for question in questions:
        table = question.get("table") or [question["logits"]] * len(question["logits"])
        if table != known:
            known, size = table, len(table)
            spec = TransformerDecoderModelSpec.from_config(1, 1, no_final_norm=True)
            decoder, layer = spec.decoder, spec.decoder.layer[0]
            decoder.scale_embeddings = False
            decoder.embeddings.weight = np.eye(size, dtype=np.float32)
            decoder.position_encodings.encodings = np.zeros((64, size), np.float32)
            decoder.projection.weight = np.float32(table).T.copy()
            for norm in (layer.self_attention.layer_norm, layer.ffn.layer_norm):
                norm.gamma, norm.beta = np.ones(size, np.float32), np.zeros(size, np.float32)
            linears = [*layer.self_attention.linear, layer.ffn.linear_0, layer.ffn.linear_1]
            for linear, parts in zip(linears, (3, 1, 1, 1)):
                linear.weight = np.zeros((parts * size, size), np.float32)
                linear.bias = np.zeros(parts * size, np.float32)
            spec.register_vocabulary([str(token) for token in range(size)])
            spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "1", str(END), "0"
            spec.validate()
            os.mkdir(f"{folder}/{len(answers)}")
            spec.save(f"{folder}/{len(answers)}")
            generator = engine.Generator(f"{folder}/{len(answers)}", compute_type="float32")
        prompt, steps = [str(token) for token in question["prompt"]], question.get("steps", 1)
        if "beam_size" in question["settings"]:
            (best,) = generator.generate_batch(
                [prompt], return_scores=True, return_end_token=True, **question["settings"]
            )
            texts = [[int(token) for token in text] for text in best.sequences]
            answers.append({"texts": texts, "scores": [round(score, 6) for score in best.scores]})
            continue
        count = question["draws"] if steps == 1 else 1
        total = len(prompt) - 1 if question["settings"].get("include_prompt_in_result", True) else 0
        results = generator.generate_batch(
            [prompt] * count, max_length=steps + total, max_batch_size=count, **question["settings"]
        )
        texts = [[int(token) for token in result.sequences[0]][-steps:] for result in results]
        answers.append({"text": texts[0]} if steps > 1 else counted(text[0] for text in texts))
    return answers


def openvino_genai(questions, folder):
    import openvino
    import openvino_genai as engine
    from openvino import opset13 as op

    def pipeline(row, folder):
        """A pipeline whose logits are this row; the other inputs that it expects are read, times 0."""
        inputs, unused = [], op.constant(np.float32(0))
        kinds = {"input_ids": np.int64, "attention_mask": np.int64, "position_ids": np.int64, "beam_idx": np.int32}
        for name, dtype in kinds.items():
            shape = [-1] if name == "beam_idx" else [-1, -1]
            inputs.append(op.parameter(shape, dtype, name=name))
            inputs[-1].output(0).set_names({name})
            total = op.reduce_sum(inputs[-1], op.constant(list(range(len(shape)))), False)
            unused = op.add(unused, op.multiply(op.convert(total, "f32"), op.constant(np.float32(0))))
        table = op.constant(np.tile(np.float32(row), (len(row), 1)))
        result = op.result(op.add(op.gather(table, inputs[0], op.constant(0)), unused))
        result.output(0).set_names({"logits"})
        openvino.save_model(openvino.Model([result], inputs), f"{folder}/openvino_model.xml", compress_to_fp16=False)
        with open(f"{folder}/config.json", "w") as file:
            file.write(f'{{"model_type": "llama", "bos_token_id": 1, "eos_token_id": {END}}}')
        return engine.LLMPipeline(folder, "CPU", ATTENTION_BACKEND="SDPA")

    pipelines, answers = {}, []
    for question in questions:
        row = tuple(question["logits"])
        if row not in pipelines:
            place = f"{folder}/{len(pipelines)}"
            os.makedirs(place)
            pipelines[row] = pipeline(row, place)
        steps = question.get("steps", 1)
        config = engine.GenerationConfig(
            max_new_tokens=question["draws"] if steps == 1 else steps, eos_token_id=END, rng_seed=1, ignore_eos=True,
            **question["settings"],
        )  # fmt: skip
        tokens = pipelines[row].generate(openvino.Tensor(np.array([question["prompt"]])), config).tokens[0]
        answers.append(counted(tokens) if steps == 1 else {"text": list(map(int, tokens))})
    return answers


def keras_hub(questions, folder):
    import keras_hub
    from keras import ops

    answers = []
    for question in questions:
        settings = question["settings"]
        kind = "TopPSampler" if "p" in settings else "TopKSampler" if "k" in settings else "RandomSampler"
        sampler = getattr(keras_hub.samplers, kind)(seed=1, **settings)
        logits = ops.convert_to_tensor(np.tile(np.float32(question["logits"]), (question["draws"], 1)))
        answers.append(counted(ops.convert_to_numpy(sampler.get_next_token(sampler.compute_probabilities(logits)))))
    return answers


def litgpt(questions, folder):
    import torch
    from litgpt.generate.base import sample

    torch.manual_seed(1)
    answers = []
    for question in questions:
        logits = torch.tensor(question["logits"])[None, None]
        answers.append(counted(sample(logits, **question["settings"]) for _ in range(question["draws"])))
    return answers


def onnxruntime_genai(questions, folder):
    import onnx
    import onnxruntime_genai as engine
    from onnx import TensorProto, helper, numpy_helper

    def model(logits, folder):
        """A model whose logits are this row; its cache holds zeros."""

        def value(name, *shape, dtype=TensorProto.FLOAT):
            return helper.make_tensor_value_info(name, dtype, shape)

        whole = TensorProto.INT64
        inputs = [value("input_ids", "b", "s", dtype=whole), value("attention_mask", "b", "t", dtype=whole)]
        outputs = [value("logits", "b", "s", len(logits))]
        nodes = [
            helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
            helper.make_node("Unsqueeze", ["input_ids", "axes"], ["tall"]),
            helper.make_node("Cast", ["tall"], ["float"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["float", "zero"], ["new"]),
        ]
        for part in ("key", "value"):
            inputs.append(value(f"past.{part}.0", "b", 1, "p", 1))
            outputs.append(value(f"present.{part}.0", "b", 1, "t", 1))
            nodes.append(helper.make_node("Concat", [f"past.{part}.0", "new"], [f"present.{part}.0"], axis=2))
        table = np.tile(np.float32(logits), (len(logits), 1))
        constants = {"table": table, "axes": np.array([1, 3]), "zero": np.array(0, np.float32)}
        constants = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, "table", inputs, outputs, constants)
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), f"{folder}/model.onnx"
        )
        decoder = {
            "filename": "model.onnx", "head_size": 1, "hidden_size": 1, "num_attention_heads": 1,
            "num_key_value_heads": 1, "num_hidden_layers": 1, "session_options": {"provider_options": []},
            "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask",
                       "past_key_names": "past.key.%d", "past_value_names": "past.value.%d"},
            "outputs": {"logits": "logits", "present_key_names": "present.key.%d",
                        "present_value_names": "present.value.%d"},
        }  # fmt: skip
        whole_model = {
            "type": "llama", "bos_token_id": 1, "eos_token_id": END, "pad_token_id": 0, "vocab_size": len(logits),
            "context_length": 20000, "decoder": decoder,
        }  # fmt: skip
        with open(f"{folder}/genai_config.json", "w") as file:
            json.dump({"model": whole_model, "search": {"max_length": 20000}}, file)
        return engine.Model(folder)

    models, answers = {}, []
    for question in questions:
        row = tuple(question["logits"])
        if row not in models:
            place = f"{folder}/{len(models)}"
            os.makedirs(place)
            models[row] = model(row, place)
        steps, prompt = question.get("steps", 1), question["prompt"]
        total = question["draws"] if steps == 1 else steps
        params = engine.GeneratorParams(models[row])
        params.set_search_options(max_length=len(prompt) + total, random_seed=1, **question["settings"])
        generator = engine.Generator(models[row], params)
        generator.append_tokens(np.array([prompt], np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        tokens = [int(token) for token in generator.get_sequence(0)][len(prompt) :]
        answers.append(counted(tokens) if steps == 1 else {"text": tokens})
    return answers


if __name__ == "__main__":
    ask = globals()[sys.argv[1].replace("-", "_").replace(".", "_")]
    answered = ask(json.load(sys.stdin), sys.argv[2])
    sys.stdout.flush()
    print("\n" + json.dumps(answered))
