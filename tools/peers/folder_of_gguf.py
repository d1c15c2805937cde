"""Writes the Hugging Face folder of a GGUF file of plain weights, in float32.

    folder_of_gguf.py FILE --out FOLDER
"""
import argparse
from pathlib import Path

import torch
import transformers

parser = argparse.ArgumentParser()
parser.add_argument("file", type=Path)
parser.add_argument("--out", type=Path, required=True)
args = parser.parse_args()
source = {"pretrained_model_name_or_path": args.file.parent, "gguf_file": args.file.name}
transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).save_pretrained(args.out)
transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(args.out)
