"""A model folder whose model writes a given text: one layer that adds nothing, an embedding of one number a token, and a head that
names the token behind each. Standard library only."""
import array
import json
import os
import struct

END = "<|im_end|>"
SPECIALS = ("<|im_start|>", END)
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Shows how the model thinks and calls tools, so that its answers are taken apart.
THINKING = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n"
            "</think>\n\n{% endif %}{{ m.content or '' }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def visible_bytes():
    """The characters that byte-level tokenizers write bytes as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


VISIBLE = visible_bytes()


def token_of(text):
    return "".join(VISIBLE[byte] for byte in text)


def floats(shape, values=()):
    """A tensor that is 0 but for {index: value}."""
    size = 1
    for length in shape:
        size *= length
    data = array.array("f", bytes(4 * size))
    for index, value in dict(values).items():
        data[index] = value
    return shape, data.tobytes()


def save_tensors(path, tensors):
    head, offset = {}, 0
    for name, (shape, data) in tensors.items():
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def save_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file)


def make(folder, pieces, template=CHATML, marks=("<think>", "</think>"), behind="\n"):
    """`pieces` are the tokens of the text, bytes or strings, each of them once; `marks` are added tokens that are no special
    ones. The text begins behind a prompt that ends with `behind`."""
    added = [*SPECIALS, *marks]
    vocabulary = {VISIBLE[byte]: byte for byte in range(256)}
    texts = [piece if piece in added else token_of(piece if isinstance(piece, bytes) else piece.encode())
             for piece in pieces]
    for text in texts:
        if text not in added:
            vocabulary.setdefault(text, len(vocabulary))
    ids = dict(vocabulary) | {text: len(vocabulary) + i for i, text in enumerate(added)}
    chain = [ids[token_of(behind.encode())], *[ids[text] for text in texts], ids[END]]
    follows = dict(zip(chain, chain[1:]))
    assert len(follows) == len(chain) - 1, "a piece stands twice in the text"

    size = len(ids)
    width = -(-size // 64) * 64
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": floats([size, width], {i * width + i: 1.0 for i in range(size)}),
               "lm_head.weight": floats([size, width], {follows.get(i, ids[END]) * width + i: 2.0 for i in range(size)}),
               layer + "mlp.down_proj.weight": floats([width, 64])}
    for name in ("model.norm", layer + "input_layernorm", layer + "post_attention_layernorm"):
        tensors[name + ".weight"] = floats([width], {i: 1.0 for i in range(width)})
    for name in ("q", "k", "v", "o"):
        tensors[layer + f"self_attn.{name}_proj.weight"] = floats([width, width])
    for name in ("gate", "up"):
        tensors[layer + f"mlp.{name}_proj.weight"] = floats([64, width])
    save_tensors(os.path.join(folder, "model.safetensors"), tensors)

    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    save_json(folder, "tokenizer.json", {
        "version": "1.0", "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "added_tokens": [{"id": ids[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": text in SPECIALS} for text in added],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}})
    save_json(folder, "tokenizer_config.json", {"tokenizer_class": "GPT2TokenizerFast", "eos_token": END,
                                                "pad_token": END, "chat_template": template})
    save_json(folder, "config.json", {
        "architectures": ["LlamaForCausalLM"], "vocab_size": size, "hidden_size": width, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": width // 64, "num_key_value_heads": width // 64,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "tie_word_embeddings": False, "hidden_act": "silu",
        "torch_dtype": "float32", "eos_token_id": ids[END]})
