"""The first layers of a model, as a model of its own: a draft model that is often right. Standard library only."""
import json
import os
import re
import shutil
import struct


def cut_model(given, folder, num_layers):
    """Writes a model of the first layers of `given`, a folder with one safetensors file, to `folder`."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(given):
        if name.endswith((".json", ".jinja", ".model", ".txt")):
            shutil.copy(os.path.join(given, name), folder)
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    assert config["num_hidden_layers"] >= num_layers
    config["num_hidden_layers"] = num_layers
    with open(path, "w") as file:
        json.dump(config, file)
    (weights,) = [name for name in os.listdir(given) if name.endswith(".safetensors")]
    with open(os.path.join(given, weights), "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        tensors = json.loads(file.read(size))
        tensors.pop("__metadata__", None)
        kept, data = {}, bytearray()
        for name, tensor in tensors.items():
            layer = re.search(r"\.layers\.(\d+)\.", name)
            if layer and int(layer[1]) >= num_layers:
                continue
            begin, end = tensor["data_offsets"]
            file.seek(8 + size + begin)
            kept[name] = {**tensor, "data_offsets": [len(data), len(data) + end - begin]}
            data += file.read(end - begin)
    header = json.dumps(kept).encode()
    header += b" " * (-len(header) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
