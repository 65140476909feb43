"""Where modules stood before they were sorted into rooms: an old path raises an ImportError that names the new one."""

from importlib.abc import MetaPathFinder

# Rooms that kept their name are not listed. What is after the old name is the same after the new one.
ROOMS = {
    "model": "batch cache fingerprint lengths lm ngram own_cache probe quantization session table tree uncached "
    "vocabularies",
    "sampling": "known_text randomness warp",
    "running": "decoding step trace",
    "drafting": "checking",
    "measures": "cost proof theory",
    "loading": "export families hub models weight_files wheel",
    "course": "exercises zoo",
    "lab": "bench training",
}
RENAMED = {
    "bench_rows": "lab.bench.rows",
    "course.zoo.judges": "course.zoo.rules",
    "decoders.draft_trees": "drafting.draft_trees",
    "generate_options": "hugging_face.options",
    "heads": "drafting",
    "heads.eagle_head": "drafting.eagle_head",
    "heads.formats": "loading.formats",
    "heads.medusa_heads": "drafting.medusa_heads",
    "lab.bench.llama_cpp": "lab.bench.other_programs",
    "lab.training.own_text": "lab.training.sampled_texts",
    "lab.training.train_dspark": "lab.training.train_joints",
    "lab.training.tell": "lab.training.texts",
    "loading.formats.dspark_files": "loading.formats.joint_files",
    "metrics": "measures",
    "metrics.memory": "measures.memory",
    "metrics.text": "measures.text",
    "sequences": "arguments",
    "sweeps": "lab.experiments",
    "viz.drawings": "course.drawings",
}


def new_name(old: str) -> str | None:
    """The path of a module that stood at `old`, both after "tutorlib."; None if nothing stood there."""
    if old in RENAMED:
        return RENAMED[old]
    return next((f"{room}.{old}" for room, modules in ROOMS.items() if old in modules.split()), None)


class Moved(MetaPathFinder):
    """Asked first, so that an older copy of the package elsewhere is not imported by halves."""

    def find_spec(self, name, path=None, target=None):
        package, _, old = name.partition(".")
        if package == __package__ and (new := new_name(old)):
            raise ImportError(f"{name} is now {package}.{new}: import it from there", name=name)
        return None
