"""What loading a tower out of a vision-language model costs in memory, measured in a process of its own."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="peak memory is measured by getrusage")

# The tower of MedGemma at full width, a few blocks deep, in bfloat16 and beside language that must stay closed. The
# catalogue's own entry is loaded through the public path; what is measured is the peak above what the process holds
# after loading a tower of one block, so that libraries are not counted.
SCRIPT = """
import json, resource, sys
from pathlib import Path
import psutil
import torch
from safetensors.torch import save_file
from crs_assets.science.encoders import EncoderSpec, load_encoder, load_encoder_spec
from crs_assets.science.encoders.spec import ENCODER_FOLDER

torch.set_num_threads(1)
WIDTH, MLP, PATCH = 1152, 4304, 14
side, home = 2 * PATCH, Path(sys.argv[1])


def peak():
    # Linux carries the peak of the process that started this one over into ru_maxrss; its own stands in /proc.
    status = Path("/proc/self/status")
    if status.exists():
        return int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def layer(prefix, rows, columns):
    return {f"{prefix}.weight": torch.zeros(rows, columns, dtype=torch.bfloat16),
            f"{prefix}.bias": torch.zeros(rows, dtype=torch.bfloat16)}


def norm(prefix):
    return {f"{prefix}.weight": torch.ones(WIDTH, dtype=torch.bfloat16),
            f"{prefix}.bias": torch.zeros(WIDTH, dtype=torch.bfloat16)}


def publish(depth):
    tower = {"embeddings.patch_embedding.weight": torch.zeros(WIDTH, 3, PATCH, PATCH, dtype=torch.bfloat16),
             "embeddings.patch_embedding.bias": torch.zeros(WIDTH, dtype=torch.bfloat16),
             "embeddings.position_embedding.weight": torch.zeros(4, WIDTH, dtype=torch.bfloat16)}
    tower |= norm("post_layernorm")
    for block in range(depth):
        place = f"encoder.layers.{block}"
        tower |= norm(f"{place}.layer_norm1") | norm(f"{place}.layer_norm2")
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            tower |= layer(f"{place}.self_attn.{name}", WIDTH, WIDTH)
        tower |= layer(f"{place}.mlp.fc1", MLP, WIDTH) | layer(f"{place}.mlp.fc2", WIDTH, MLP)
    tower = {f"vision_tower.vision_model.{key}": tensor for key, tensor in tower.items()}
    folder = home / str(depth) / "google" / "medgemma-4b-it"
    folder.mkdir(parents=True)
    save_file(tower, folder / "b.safetensors")
    (folder / "a.safetensors").write_bytes(b"never opened")
    places = dict.fromkeys(tower, "b.safetensors") | {"language_model.model.norm.weight": "a.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return sum(tensor.numel() for tensor in tower.values())


def load(depth):
    document = load_encoder_spec(ENCODER_FOLDER / "medgemma.toml").model_dump()
    document["parameters"] = None
    document["architecture"]["kwargs"] |= {"img_size": side, "depth": depth}
    document["preprocessing"]["input_size"] = side
    document["tap"]["blocks"] = depth
    return load_encoder(EncoderSpec.model_validate(document), home / str(depth))


if sys.argv[3:] == ["write"]:
    print(json.dumps([publish(depth) for depth in (1, int(sys.argv[2]))]))
else:
    load(1)
    before = psutil.Process().memory_info().rss
    encoder = load(int(sys.argv[2]))
    assert next(encoder.model.parameters()).dtype == torch.float32
    print(peak() - before)
"""


def run(folder, *arguments):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(folder), *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_loading_a_tower_peaks_below_twice_its_size(tmp_path):
    depth = 8
    parameters = run(tmp_path, str(depth), "write")[1]
    size = 4 * parameters  # float32, as it runs
    assert size > 450e6
    peak = run(tmp_path, str(depth))
    assert size < peak < 2 * size
