#!/usr/bin/env python3
"""Beam search goldens from Hugging Face transformers over a toy model.

usage: make_beam_goldens.py [OUTPUT_FOLDER]     (default tests/data/sampling)

The model is a table: the logits of the next token depend only on the last two tokens, logits[(a * 31 + b) % rows]. So
beam search can be tested alone, without a model runner. Writes beam_search.json: the table, the prompts, and per case
the settings with the sequences and scores that transformers returns. Deterministic; needs torch and transformers.
"""
import json
import pathlib
import sys

import torch
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

VOCAB, ROWS, EOS = 14, 40, [3, 9]


class TableConfig(PretrainedConfig):
    model_type = "table"


class TableModel(PreTrainedModel, GenerationMixin):
    config_class = TableConfig
    main_input_name = "input_ids"

    def __init__(self, table):
        super().__init__(TableConfig(vocab_size=VOCAB))
        self.table = torch.nn.Parameter(table, requires_grad=False)
        self.post_init()

    def forward(self, input_ids, **_):
        before = torch.cat((input_ids[:, :1], input_ids[:, :-1]), dim=1)
        return CausalLMOutput(logits=self.table[(before * 31 + input_ids) % ROWS])

    def prepare_inputs_for_generation(self, input_ids, **_):
        return {"input_ids": input_ids}


def run(model, prompt, case):
    config = GenerationConfig(
        max_new_tokens=case["max_tokens"], num_beams=case["width"], num_return_sequences=case["width"],
        early_stopping={"no": False, "yes": True, "never": "never"}[case["early_stopping"]],
        length_penalty=case["length_penalty"], eos_token_id=case["ending_tokens"] or None, pad_token_id=0,
        use_cache=False, return_dict_in_generate=True, output_scores=True, output_logits=True, do_sample=False)
    out = model.generate(torch.tensor([prompt]), generation_config=config)
    results = []
    for tokens, score, beams in zip(out.sequences, out.sequences_scores, out.beam_indices):
        length = int((beams >= 0).sum())
        generated = tokens[len(prompt):len(prompt) + length].tolist()
        results.append({"tokens": generated, "score": round(float(score), 6)})
    return results


def main():
    torch.manual_seed(1234)
    table = (torch.randn(ROWS, VOCAB) * 1.5 * 1000).round() / 1000
    table[:, EOS] += 0.3
    model = TableModel(table).eval()
    cases = []
    for width in (2, 4, 7):
        for max_tokens in (1, 3, 12):
            for early_stopping in ("no", "yes", "never"):
                for length_penalty in (-1.0, 0.0, 0.6, 1.0, 2.0):
                    for ending_tokens in ([], EOS[:1], EOS):
                        index = len(cases)
                        if width == 7 and max_tokens != 12:
                            continue
                        cases.append({"prompt": index % 3, "width": width, "max_tokens": max_tokens,
                                      "early_stopping": early_stopping, "length_penalty": length_penalty,
                                      "ending_tokens": ending_tokens})
    prompts = [[5, 1], [0, 7], [12]]
    with torch.no_grad():
        for case in cases:
            case["outputs"] = run(model, prompts[case["prompt"]], case)
    golden = {"rows": ROWS, "vocab": VOCAB, "logits": [round(x, 3) for x in table.flatten().tolist()],
              "prompts": prompts, "cases": cases}
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "tests/data/sampling")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "beam_search.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
