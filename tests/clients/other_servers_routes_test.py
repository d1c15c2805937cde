#!/usr/bin/env python3
"""Routes of vLLM, SGLang and Ollama that their clients, benchmarks and routers ask for. Standard library only.

usage: other_servers_routes_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import contextlib
import http.client
import json
import sys
import unittest

from server import main

PROMPT = "Once upon a time there was a little"
MESSAGES = [{"role": "user", "content": "A story, please."}]
server = None
model = None


def refusal(path, body, method="POST"):
    """(status, body) of an answer that is no 200."""
    status, _, answer = server.request(method, path, body)
    assert status != 200, (path, answer)
    return status, json.loads(answer)


class Vllm(unittest.TestCase):
    def test_the_tokenizer_is_told(self):
        info = server.json("GET", "/tokenizer_info")
        self.assertTrue(info["tokenizer_class"])
        end = server.json("POST", "/tokenize", {"prompt": info["eos_token"], "add_special_tokens": False})["tokens"]
        self.assertEqual(len(end), 1, "the end token is one token")
        self.assertIn("message", info["chat_template"])
        self.assertEqual(refusal("/tokenizer_info?model=nonesuch", None, "GET")[0], 404)

    def test_a_rendered_conversation_is_the_prompt(self):
        rendered = server.json("POST", "/v1/chat/completions/render",
                               {"messages": MESSAGES, "max_tokens": 5, "temperature": 0, "stop": "x", "stream": True})
        self.assertEqual(rendered["token_ids"], server.json("POST", "/tokenize", {"messages": MESSAGES})["tokens"])
        self.assertEqual((rendered["model"], rendered["stream"]), (model, True))
        sampling = rendered["sampling_params"]
        self.assertEqual((sampling["max_tokens"], sampling["temperature"], sampling["stop"]), (5, 0, ["x"]))
        body = {"prompt": rendered["token_ids"], "max_tokens": 5, "temperature": 0}
        chat = server.json("POST", "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 5, "temperature": 0})
        self.assertEqual(server.json("POST", "/v1/completions", body)["usage"]["prompt_tokens"], chat["usage"]["prompt_tokens"])

    def test_rendered_prompts_come_in_their_order(self):
        rendered = server.json("POST", "/v1/completions/render", {"prompt": [PROMPT, [40, 41], "Hi"]})
        self.assertEqual([each["token_ids"] for each in rendered],
                         [server.json("POST", "/tokenize", {"prompt": PROMPT})["tokens"], [40, 41],
                          server.json("POST", "/tokenize", {"prompt": "Hi"})["tokens"]])
        self.assertEqual(len({each["request_id"] for each in rendered}), 3)

    def test_what_is_wrong_is_refused_as_where_it_runs(self):
        for path in ("/v1/chat/completions", "/v1/completions"):
            for body in ({}, {"messages": 7, "prompt": 7}, {"model": "nonesuch", "prompt": "a", "messages": MESSAGES}):
                self.assertEqual(refusal(path + "/render", body), refusal(path, body), (path, body))

    def test_penalties_have_a_window(self):
        def text(**fields):
            body = {"prompt": PROMPT, "max_tokens": 60, "temperature": 0, "ignore_eos": True, **fields}
            return server.json("POST", "/v1/completions", body)["choices"][0]["text"]
        plain = text()
        penalised = text(repetition_penalty=1.8)
        self.assertNotEqual(penalised, plain)
        self.assertEqual(text(repetition_penalty=1.8, repeat_last_n=0), plain)
        self.assertEqual(text(repetition_penalty=1.8, repeat_last_n=-1), penalised)
        self.assertEqual(text(repetition_penalty=1.8, repeat_last_n=2000), penalised)
        self.assertNotIn(text(repetition_penalty=1.8, repeat_last_n=2), (plain, penalised))
        self.assertEqual(refusal("/v1/completions", {"prompt": "a", "repeat_last_n": -2})[1]["error"]["param"], "repeat_last_n")


    def test_a_rendered_response_is_the_prompt(self):
        body = {"input": "A story, please.", "instructions": "Be short.", "max_output_tokens": 16}
        rendered = server.json("POST", "/v1/responses/render", body)
        count = server.json("POST", "/v1/responses/input_tokens", body)["input_tokens"]
        self.assertEqual((len(rendered["token_ids"]), rendered["sampling_params"]["max_tokens"]), (count, 16))
        self.assertEqual(refusal("/v1/responses/render", {"input": 7}), refusal("/v1/responses", {"input": 7}))

    def test_the_load_counts_what_waits_and_runs(self):
        idle = server.json("GET", "/v1/loads")
        self.assertEqual((idle["dp_rank_count"], len(idle["loads"])), (1, 1))
        self.assertEqual(idle["aggregate"]["total_reqs"], idle["loads"][0]["num_total_reqs"])
        about = server.json("GET", "/server_info")
        self.assertEqual((idle["loads"][0]["max_total_num_tokens"], idle["loads"][0]["max_running_requests"]),
                         (about["max_total_num_tokens"], about["max_running_requests"]))
        with contextlib.closing(http.client.HTTPConnection(server.host, server.port, timeout=60)) as client:
            body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True}
            client.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            client.getresponse().read(100)
            busy = server.json("GET", "/v1/loads?include=core,queues")
        load = busy["loads"][0]
        self.assertEqual((load["num_running_reqs"], load["num_waiting_reqs"], load["num_total_reqs"]), (1, 0, 1))
        self.assertGreater(load["num_used_tokens"], 0)
        self.assertAlmostEqual(load["token_usage"], load["num_used_tokens"] / load["max_total_num_tokens"])
        self.assertAlmostEqual(busy["aggregate"]["avg_token_usage"], load["token_usage"])


class Sglang(unittest.TestCase):
    def test_a_router_learns_what_it_asks(self):
        about = server.json("GET", "/server_info")
        length = server.json("GET", "/v1/models")["data"][0]["max_model_len"]
        self.assertEqual((about["served_model_name"], about["context_length"]), (model, length))
        self.assertEqual((about["tp_size"], about["dp_size"], about["is_embedding"]), (1, 1, False))
        self.assertEqual(about["version"], server.json("GET", "/version")["version"])
        card = server.json("GET", "/model_info")
        self.assertEqual((card["is_generation"], card["model_path"]), (True, model))
        self.assertEqual(len(card["architectures"]), 1)
        for path in ("/server_info", "/model_info"):
            self.assertEqual(server.json("GET", path.replace("/", "/get_")), server.json("GET", path))
        self.assertEqual(server.json("GET", "/health_generate"), server.json("GET", "/health"))
        self.assertEqual(refusal("/flush_cache", None)[1]["error"]["code"], "admin_key_required")
        load = server.json("GET", "/get_load")
        self.assertEqual([sorted(each) for each in load], [["dp_rank", "num_reqs", "num_tokens", "num_waiting_reqs"]])


class OpenAi(unittest.TestCase):
    def test_tokens_of_an_input(self):
        answer = server.json("POST", "/v1/responses/input_tokens", {"input": "A story, please."})
        self.assertEqual(answer, {"object": "response.input_tokens", "input_tokens": server.count_chat(MESSAGES)})
        body = {"input": "A story, please.", "instructions": "Be short.", "max_output_tokens": 16}
        response = server.json("POST", "/v1/responses", {**body, "store": True})
        count = server.json("POST", "/v1/responses/input_tokens", body)
        self.assertEqual(count["input_tokens"], response["usage"]["input_tokens"])
        body = {"input": "Another.", "previous_response_id": response["id"]}
        count = server.json("POST", "/v1/responses/input_tokens", body)
        second = server.json("POST", "/v1/responses", {**body, "max_output_tokens": 16})
        self.assertEqual(count["input_tokens"], second["usage"]["input_tokens"])
        self.assertEqual(refusal("/v1/responses/input_tokens", {"input": 7})[1]["error"]["param"], "input")

    def test_the_tag_latest_is_the_model_itself(self):
        named = {"model": model + ":latest"}
        for path, body in (("/v1/completions", {"prompt": "a", "max_tokens": 1}),
                           ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1}),
                           ("/v1/responses", {"input": "a", "max_output_tokens": 16}),
                           ("/v1/messages", {"messages": MESSAGES, "max_tokens": 1})):
            self.assertEqual(server.json("POST", path, {**body, **named})["model"], model, path)
        for path, body in (("/tokenize", {"prompt": "a"}), ("/v1/messages/count_tokens", {"messages": MESSAGES}),
                           ("/apply_template", {"messages": MESSAGES}), ("/v1/completions/render", {"prompt": "a"})):
            server.json("POST", path, {**body, **named})
        self.assertEqual(server.json("GET", f"/v1/models/{model}:latest")["id"], model + ":latest")
        self.assertEqual(refusal("/v1/completions", {"model": model + ":7b", "prompt": "a"})[0], 404)

    def test_no_embeddings(self):
        for path, body in (("/v1/embeddings", {"input": "a"}), ("/pooling", {"input": "a"}), ("/classify", {"input": "a"}),
                           ("/rerank", {"query": "a", "documents": ["b"]}), ("/v1/rerank", {}), ("/v2/rerank", {}),
                           ("/score", {"text_1": "a", "text_2": "b"}), ("/v1/score", {})):
            status, answer = refusal(path, {"model": model, **body})
            self.assertEqual((status, answer["error"]["code"]), (404, "not_supported"), path)
            self.assertIn("does not compute", answer["error"]["message"])
        self.assertIn("does not compute embeddings", refusal("/v1/embeddings", {"input": "a"})[1]["error"]["message"])
        self.assertEqual(refusal("/v1/embeddings", {"model": "nonesuch", "input": "a"})[1]["error"]["code"], "model_not_found")


class Ollama(unittest.TestCase):
    def test_a_model_that_is_served_is_there(self):
        self.assertEqual(server.json("POST", "/api/pull", {"model": model, "stream": False}), {"status": "success"})
        status, headers, answer = server.request("POST", "/api/pull", {"name": model + ":latest"})
        self.assertEqual((status, headers["content-type"]), (200, "application/x-ndjson"))
        self.assertEqual(json.loads(answer.splitlines()[-1]), {"status": "success"})
        self.assertEqual(refusal("/api/pull", {"model": "nonesuch"})[1], {"error": "pull model manifest: file does not exist"})
        self.assertEqual(refusal("/api/pull", {})[1], {"error": "model is required"})

    def test_no_embeddings(self):
        for path, body in (("/api/embed", {"input": "a"}), ("/api/embeddings", {"prompt": "a"})):
            status, answer = refusal(path, {"model": model, **body})
            self.assertEqual(status, 404)
            self.assertIn("does not compute embeddings", answer["error"])
            self.assertIn("does not support embeddings", answer["error"])

    def test_the_version_is_one_that_has_all_that_is_here(self):
        version = tuple(int(part) for part in server.json("GET", "/api/version")["version"].split("."))
        self.assertGreaterEqual(version, (0, 13, 4))

    def test_what_the_model_can_do(self):
        listed = server.json("GET", "/api/tags")["models"][0]
        shown = server.json("POST", "/api/show", {"model": model})
        self.assertEqual(listed["capabilities"], shown["capabilities"])
        self.assertRegex(listed["digest"], r"^[0-9a-f]{64}$")
        self.assertEqual(shown["template"], server.json("GET", "/tokenizer_info")["chat_template"])
        info = shown["model_info"]
        for name in ("context_length", "embedding_length", "block_count", "attention.head_count"):
            self.assertGreater(info[info["general.architecture"] + "." + name], 0)

    def test_penalties_have_ollamas_window(self):
        def text(**options):
            body = {"model": model, "prompt": PROMPT, "raw": True, "stream": False}
            options = {"temperature": 0, "num_predict": 80, **options}
            return server.json("POST", "/api/generate", {**body, "options": options})["response"]
        self.assertEqual(text(repeat_penalty=1.8), text(repeat_penalty=1.8, repeat_last_n=64))
        self.assertEqual(text(repeat_penalty=1.8, repeat_last_n=0.0), text())
        self.assertNotEqual(text(repeat_penalty=1.8, repeat_last_n=1), text(repeat_penalty=1.8))

    def test_tools_of_a_model_without_them(self):
        tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}
        body = {"model": model, "messages": MESSAGES, "tools": [tool]}
        if "tools" in server.json("POST", "/api/show", {"model": model})["capabilities"]:
            self.skipTest("this model has tools")
        self.assertIn("does not support tools", refusal("/api/chat", body)[1]["error"])


class Streams(unittest.TestCase):
    def test_proxies_are_asked_to_pass_them_on(self):
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2}),
                           ("/v1/responses", {"input": "a", "max_output_tokens": 16}), ("/v1/messages", {"messages": MESSAGES, "max_tokens": 2}),
                           ("/api/generate", {"prompt": "a", "options": {"num_predict": 1}})):
            status, headers, answer = server.request("POST", path, {"model": model, "stream": True, **body})
            self.assertEqual((status, headers.get("x-accel-buffering")), (200, "no"), (path, answer[:200]))
        self.assertNotIn("x-accel-buffering", server.request("POST", "/v1/completions", {"prompt": "a"})[1])


if __name__ == "__main__":
    main(sys.modules[__name__])
