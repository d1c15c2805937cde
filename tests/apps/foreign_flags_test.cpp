#include "apps/foreign_flags.hpp"

#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> translated(const std::vector<std::string>& arguments) {
  const auto translation = translate_flags(arguments);
  for (const auto& problem : translation.problems) ADD_FAILURE() << problem.message;
  return translation.arguments;
}

std::string flags_problem(const std::vector<std::string>& arguments) {
  const auto translation = translate_flags(arguments);
  EXPECT_EQ(translation.problems.size(), 1U);
  return translation.problems.empty() ? "" : translation.problems.front().message;
}

std::vector<std::string> split(std::string_view names) {
  std::istringstream text{std::string(names)};
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, ',');) words.push_back(word);
  return words;
}

TEST(ForeignFlags, leaves_own_flags_and_arguments_alone) {
  EXPECT_THAT(translated({"model", "--http", "127.0.0.1:0", "--max-num-seqs=4", "--no-touch-memory"}),
              ElementsAre("model", "--http", "127.0.0.1:0", "--max-num-seqs=4", "--no-touch-memory"));
  EXPECT_THAT(translated({"--no-such-flag", "--", "-"}), ElementsAre("--no-such-flag", "--", "-"));
}

TEST(ForeignFlags, take_host_and_port_for_the_address_of_the_http_apis) {
  EXPECT_THAT(translated({"--host", "0.0.0.0", "--port", "80"}), ElementsAre("--http", "0.0.0.0:80"));
  EXPECT_THAT(translated({"--port=9000"}), ElementsAre("--http", "127.0.0.1:9000"));
  EXPECT_THAT(translated({"--host", "::1"}), ElementsAre("--http", "[::1]:8000"));
  EXPECT_THAT(flags_problem({"--port", "1", "--http", "127.0.0.1:2"}),
              HasSubstr("--port cannot be given beside --http"));
  EXPECT_EQ(flags_problem({"--port"}), "--port needs a value");
}

TEST(ForeignFlags, get_their_own_names) {
  EXPECT_THAT(translated({"-tp", "1"}), ElementsAre("--tensor-parallel-size", "1"));
  EXPECT_THAT(translated({"-tp=2"}), ElementsAre("--tensor-parallel-size", "2"));
  EXPECT_THAT(translated({"-dp", "2"}), ElementsAre("--data-parallel-size", "2"));
  EXPECT_THAT(translated({"--ssl-certfile", "c", "--ssl-keyfile", "k"}),
              ElementsAre("--tls-cert", "c", "--tls-key", "k"));
  EXPECT_THAT(translated({"--shutdown-timeout", "60"}), ElementsAre("--drain-timeout", "60"));
  EXPECT_THAT(translated({"--num-gpu-blocks-override", "9"}), ElementsAre("--num-device-blocks", "9"));
  EXPECT_THAT(translated({"--async-scheduling"}), ElementsAre("--pipeline-depth", "2"));
  EXPECT_THAT(translated({"--no-async-scheduling"}), ElementsAre("--pipeline-depth", "1"));
  EXPECT_THAT(translated({"--max_model_len", "5"}), ElementsAre("--max-model-len", "5"));
}

TEST(ForeignFlags, of_draft_models_are_joined_to_one) {
  EXPECT_THAT(translated({"-m", "big.gguf", "-md", "small.gguf", "--draft-max", "8"}),
              ElementsAre("--model", "big.gguf", "--speculative-config",
                          R"({"model":"small.gguf","num_speculative_tokens":8})"));
  EXPECT_THAT(translated({"big", "--num-speculative-tokens", "900", "--speculative-model", "small"}),
              ElementsAre("big", "--speculative-config", R"({"model":"small","num_speculative_tokens":64})"));
  EXPECT_THAT(translated({"--speculative-model", "[ngram]"}),
              ElementsAre("--speculative-config", R"({"method":"ngram"})"));
  EXPECT_THAT(flags_problem({"-md", "small.gguf", "--draft-max", "few"}), "--draft-max must be a number, not few");
  const auto without = translate_flags(std::vector<std::string>{"-md", "small.gguf", "--draft-max", "0"});
  EXPECT_TRUE(without.arguments.empty());
  EXPECT_THAT(without.notes.front(), HasSubstr("--draft-max 0 has no effect"));
  EXPECT_THAT(translate_flags(std::vector<std::string>{"--draft", "4"}).notes.front(),
              HasSubstr("--draft has no effect: no draft model is named"));
}

TEST(ForeignFlags, keep_the_meaning_of_their_values) {
  EXPECT_THAT(translated({"--dtype", "half"}), ElementsAre("--dtype", "float16"));
  EXPECT_THAT(translated({"--dtype", "bfloat16"}), ElementsAre("--dtype", "bfloat16"));
  EXPECT_THAT(translated({"--max-model-len", "32k"}), ElementsAre("--max-model-len", "32000"));
  EXPECT_THAT(translated({"--max-model-len=32K"}), ElementsAre("--max-model-len", "32768"));
  EXPECT_THAT(translated({"--max-model-len", "25.6k"}), ElementsAre("--max-model-len", "25600"));
  for (const char* wrong : {"25.6K", "k", ".k", "1.2.3k", "much", "99999999t"}) {
    EXPECT_THAT(translated({"--max-model-len", wrong}), ElementsAre("--max-model-len", wrong));
  }
  EXPECT_THAT(translated({"--kv-cache-memory-bytes", "1G"}), ElementsAre("--kv-cache-memory", "1.000000000000"));
  EXPECT_THAT(flags_problem({"--kv-cache-memory-bytes", "much"}), HasSubstr("a number of bytes, not much"));
  EXPECT_THAT(translated({"--allowed-origins", "[\"*\"]"}), ElementsAre("--cors-origin", "*"));
  EXPECT_THAT(flags_problem({"--allowed-origins", "[\"a\",\"b\"]"}), HasSubstr("a list of one origin"));
}

TEST(ForeignFlags, are_refused_for_some_of_their_values) {
  EXPECT_THAT(flags_problem({"--load-format", "bitsandbytes"}), HasSubstr("--load-format bitsandbytes has no"));
  EXPECT_THAT(flags_problem({"--quantization", "fp8"}), HasSubstr("--quantization fp8 may change the weights"));
  EXPECT_THAT(flags_problem({"--task", "embed"}), HasSubstr("--task embed has no counterpart"));
  EXPECT_THAT(flags_problem({"--task", "--seed", "1"}), HasSubstr("--task has no counterpart"));
  EXPECT_THAT(flags_problem({"--max-model-len", "-1"}), HasSubstr("--max-model-len -1 has no counterpart"));
  EXPECT_THAT(flags_problem({"--max_model_len=auto"}), HasSubstr("--max-model-len auto has no counterpart"));
  EXPECT_THAT(flags_problem({"-dcp", "2"}), HasSubstr("-dcp 2 has no counterpart: a model runs on one host"));
  EXPECT_THAT(translated({"-pp=2"}), ElementsAre("--pipeline-parallel-size", "2"));
  EXPECT_THAT(translated({"--load-format", "dummy", "-tp", "1", "--device", "cuda:1"}),
              ElementsAre("--load-format", "dummy", "--tensor-parallel-size", "1", "--device", "cuda:1"));
  const auto translation = translate_flags(std::vector<std::string>{"--device", "auto", "--seed", "1"});
  EXPECT_THAT(translation.arguments, ElementsAre("--seed", "1"));
}

TEST(ForeignFlags, are_refused_with_their_values) {
  const auto translation =
      translate_flags(std::vector<std::string>{"--lora-scaled", "a", "0.5", "--seed", "1", "--uds=/run/x"});
  ASSERT_EQ(translation.problems.size(), 2U);
  EXPECT_THAT(translation.problems[0].message, HasSubstr("--lora-scaled applies an adapter to every request"));
  EXPECT_EQ(translation.problems[1].param, "--uds");
  EXPECT_THAT(translation.arguments, ElementsAre("--seed", "1"));
}

TEST(ForeignFlags, of_adapters_are_joined_to_one) {
  const auto joined = [](std::vector<std::string> arguments) { return translated(std::move(arguments)); };
  EXPECT_THAT(joined({"--lora-modules", "a=b", "c=d", "model", "--seed", "1"}),
              ElementsAre("model", "--seed", "1", "--lora-modules", "a=b,c=d"));
  EXPECT_THAT(joined({"--lora-modules=a=b", "--lora_modules", "c=d"}), ElementsAre("--lora-modules", "a=b,c=d"));
  EXPECT_THAT(joined({"--lora-modules", "a=b,c=d"}), ElementsAre("--lora-modules", "a=b,c=d"));
  EXPECT_THAT(joined({"--lora-modules", R"({"name": "a", "path": "b"})", "c=d"}),
              ElementsAre("--lora-modules", R"([{"name":"a","path":"b"},"c=d"])"));
  EXPECT_THAT(joined({"--prompt-adapters", "p=q", "r=s", "--lora-modules", "a=b"}),
              ElementsAre("--lora-modules", "a=b", "--prompt-adapters", "p=q,r=s"));
  EXPECT_THAT(joined({"--lora-modules", "a=b,x", "--lora-modules", "c=d"}),
              ElementsAre("--lora-modules", R"(["a=b,x","c=d"])"));
  EXPECT_THAT(joined({"--lora-modules", "a=b,c=d", "e=f"}), ElementsAre("--lora-modules", "a=b,c=d,e=f"));
  EXPECT_THAT(joined({"--enable-lora", "--max-loras", "4", "--max-cpu-loras=8", "--max_lora_rank", "16"}),
              ElementsAre("--enable-lora", "--max-loras", "4", "--max-cpu-loras=8", "--max-lora-rank", "16"));
  EXPECT_THAT(flags_problem({"--lora-modules"}), HasSubstr("--lora-modules needs a value"));
  EXPECT_THAT(flags_problem({"--lora-modules", "--seed", "1"}), HasSubstr("--lora-modules needs a value"));
}

TEST(ForeignFlags, of_adapters_of_llama_server_are_taken_if_requests_choose) {
  EXPECT_THAT(
      translate_flags(std::vector<std::string>{"--lora", "/a/sql.gguf,b.gguf", "--lora-init-without-apply"}).arguments,
      ElementsAre("--enable-lora", "--lora-modules",
                  R"([{"name":"sql","path":"/a/sql.gguf"},{"name":"b","path":"b.gguf"}])"));
  EXPECT_THAT(flags_problem({"--lora", "sql.gguf"}), HasSubstr("--lora applies an adapter to every request"));
  EXPECT_THAT(flags_problem({"--lora", "sql.gguf"}), HasSubstr("beside --lora-init-without-apply it is taken"));
}

/// The flags that are noted; what is left of the arguments is in `rest`.
std::vector<std::string> noted(const std::vector<std::string>& arguments, std::vector<std::string>& rest) {
  auto translation = translate_flags(arguments);
  for (const auto& problem : translation.problems) ADD_FAILURE() << problem.message;
  rest = std::move(translation.arguments);
  std::vector<std::string> flags;
  for (const auto& note : translation.notes) flags.push_back(note.substr(0, note.find(" has no effect: ")));
  std::erase(flags, "the HTTP APIs are off: --port 8000 turns them on");
  return flags;
}

TEST(ForeignFlags, that_change_nothing_are_noted_and_their_values_go_with_them) {
  std::vector<std::string> rest;
  EXPECT_THAT(noted({"--trust-remote-code", "model", "--enable-auto-tool-choice"}, rest),
              ElementsAre("--trust-remote-code", "--enable-auto-tool-choice"));
  EXPECT_THAT(rest, ElementsAre("model"));
  EXPECT_THAT(noted({"--guided_decoding_backend", "xgrammar", "model"}, rest),
              ElementsAre("--guided-decoding-backend"));
  EXPECT_THAT(rest, ElementsAre("model"));
  EXPECT_THAT(noted({"--guided-decoding-backend=xgrammar", "model"}, rest), ElementsAre("--guided-decoding-backend"));
  EXPECT_THAT(rest, ElementsAre("model"));
  EXPECT_THAT(noted({"--compilation-config.mode", "3", "-O3", "model"}, rest),
              ElementsAre("--compilation-config.mode", "-O3"));
  EXPECT_THAT(rest, ElementsAre("model"));
  EXPECT_THAT(noted({"--cudagraph-capture-sizes", "1", "2", "model"}, rest), ElementsAre("--cudagraph-capture-sizes"));
  EXPECT_THAT(rest, ElementsAre("model"));
  EXPECT_THAT(noted({"-fa", "on", "-fa", "model"}, rest), ElementsAre("-fa", "-fa"));
  EXPECT_THAT(rest, ElementsAre("model"));
  EXPECT_THAT(noted({"-ngl", "-1", "--mlock", "model"}, rest), ElementsAre("-ngl", "--mlock"));
  EXPECT_THAT(rest, ElementsAre("model"));
  EXPECT_THAT(noted({"--nnodes", "1", "--quantization", "awq"}, rest), ElementsAre("--nnodes 1", "--quantization awq"));
  EXPECT_THAT(rest, IsEmpty());
  EXPECT_THAT(noted({"-s", "-1", "--seed", "-1"}, rest), ElementsAre("-s -1", "--seed -1"));
  EXPECT_THAT(rest, IsEmpty());
}

TEST(ForeignFlags, of_a_gpu_are_noted_where_the_model_runs_on_the_cpu) {
  std::vector<std::string> rest;
  EXPECT_THAT(noted({"model", "--gpu-memory-utilization", "0.5", "--enforce-eager"}, rest),
              ElementsAre("--gpu-memory-utilization", "--enforce-eager"));
  EXPECT_THAT(rest, ElementsAre("model"));
  const std::vector<std::string> gpu{"--device", "cuda:1", "--gpu-memory-utilization", "0.5", "--enforce-eager"};
  EXPECT_THAT(noted(gpu, rest), IsEmpty());
  EXPECT_EQ(rest, gpu);
  const std::vector<std::string> file{"--config", "f", "--gpu-memory-utilization=0.5"};
  EXPECT_THAT(noted(file, rest), IsEmpty());
  EXPECT_EQ(rest, file);
}

TEST(ForeignFlags, the_http_apis_are_off_is_said_to_users_of_other_servers) {
  const auto notes = [](const std::vector<std::string>& arguments) { return translate_flags(arguments).notes; };
  EXPECT_THAT(notes({"-m", "model"}), ElementsAre("the HTTP APIs are off: --port 8000 turns them on"));
  EXPECT_THAT(notes({"-m", "model", "--port", "1"}), IsEmpty());
  EXPECT_THAT(notes({"-m", "model", "--http", "127.0.0.1:1"}), IsEmpty());
  EXPECT_THAT(notes({"-m", "model", "--config", "file"}), IsEmpty());
  EXPECT_THAT(notes({"model", "--seed", "1"}), IsEmpty());
}

TEST(ForeignFlags, of_llama_server_have_their_meaning) {
  EXPECT_THAT(translated({"-m", "f", "-a", "n", "-t", "4", "-s", "1"}),
              ElementsAre("--model", "f", "--served-model-name", "n", "--threads", "4", "--seed", "1"));
  EXPECT_THAT(translated({"-c", "4096"}), ElementsAre("--max-model-len", "4096"));
  EXPECT_THAT(translated({"-c", "4096", "-np", "4"}), ElementsAre("--max-num-seqs", "4", "--max-model-len", "1024"));
  EXPECT_THAT(translated({"-c", "0", "-np", "4"}), ElementsAre("--max-num-seqs", "4", "--max-model-len", "0"));
  EXPECT_THAT(translated({"-c", "4096", "-np", "4", "-kvu"}),
              ElementsAre("--max-num-seqs", "4", "--max-model-len", "4096"));
  EXPECT_THAT(translated({"-c", "many", "-np", "4"}), ElementsAre("--max-num-seqs", "4", "--max-model-len", "many"));
  EXPECT_THAT(translated({"-ctk", "q8_0", "-ctv", "q8_0"}), ElementsAre("--kv-cache-dtype", "int8"));
  EXPECT_THAT(translated({"-ctk", "f16"}), ElementsAre("--kv-cache-dtype", "float16"));
  EXPECT_THAT(flags_problem({"-ctk", "q8_0"}), HasSubstr("for keys and values alike, not q8_0 and f16"));
  EXPECT_THAT(flags_problem({"-ctv", "q4_0"}), HasSubstr("--cache-type-v must be"));
  EXPECT_THAT(translated({"--log-disable", "--no-webui"}), ElementsAre("--log-level", "off", "--no-page"));
  EXPECT_THAT(flags_problem({"--temp", "0.6"}), HasSubstr("requests bring it"));
  EXPECT_THAT(flags_problem({"-n", "512"}), HasSubstr("-n has no counterpart"));
  EXPECT_THAT(flags_problem({"--reasoning-format", "none"}), HasSubstr("--reasoning-format has no counterpart"));
}

TEST(ForeignFlags, a_tokenizer_of_its_own_is_refused_beside_a_folder) {
  std::vector<std::string> rest;
  EXPECT_THAT(noted({"m.gguf", "--tokenizer", "org/name"}, rest), ElementsAre("--tokenizer"));
  EXPECT_THAT(noted({"folder", "--tokenizer", "folder"}, rest), ElementsAre("--tokenizer"));
  EXPECT_THAT(flags_problem({"folder", "--tokenizer", "other"}), HasSubstr("the tokenizer is that of the model's"));
  EXPECT_THAT(flags_problem({"folder", "--tokenizer=other"}), HasSubstr("the tokenizer is that of the model's"));
}

TEST(ForeignFlags, have_one_fate_each) {
  std::set<std::string> seen;
  const auto once = [&](const std::string& name) { EXPECT_TRUE(seen.insert(name).second) << name; };
  for (const auto& name : vllm().same) {
    once(std::string(name));
    EXPECT_THAT(translate_flags(std::vector<std::string>{std::string(name), "1"}).problems, IsEmpty()) << name;
  }
  for (const auto* server : {&vllm(), &llama_server()}) {
    for (const auto& flag : server->taken) {
      for (const auto& name : split(flag.names)) once(name);
    }
    for (const auto& flag : server->noted) {
      for (const auto& name : split(flag.names)) {
        once(name);
        const auto translation = translate_flags(std::vector<std::string>{name, "--http=x"});
        EXPECT_THAT(translation.problems, IsEmpty());
        EXPECT_THAT(translation.notes, ElementsAre(name + " has no effect: " + std::string(flag.why)));
        EXPECT_THAT(translation.arguments, ElementsAre("--http=x"));
      }
    }
    for (const auto& flag : server->refused) {
      for (const auto& name : split(flag.names)) {
        once(name);
        if (name == "--tokenizer" || name == "--hf-config-path") continue;  // they want a value first
        EXPECT_EQ(flags_problem({name}), name + " " + std::string(flag.advice));
      }
    }
  }
  EXPECT_GE(seen.size(), 250U);
}

struct CommandLine {
  std::string like;
  std::vector<std::string> line, becomes, noted, refused;
};

std::vector<CommandLine> command_lines() {
  std::ifstream file(PAGODA_SOURCE_DIR "/tests/data/apps/command_lines.json");
  std::vector<CommandLine> lines;
  for (const auto& entry : nlohmann::json::parse(file)) {
    lines.push_back({entry["server"].get<std::string>() + ": " + entry["like"].get<std::string>(), entry["line"],
                     entry["becomes"], entry["noted"], entry["refused"]});
  }
  return lines;
}

TEST(ForeignFlags, command_lines_that_people_have_become_ours) {
  const auto lines = command_lines();
  EXPECT_GE(lines.size(), 40U);
  for (const auto& line : lines) {
    const auto translation = translate_flags(line.line);
    EXPECT_EQ(translation.arguments, line.becomes) << line.like;
    std::vector<std::string> noted;
    for (const auto& note : translation.notes) {
      if (note.starts_with('-')) noted.push_back(note.substr(0, note.find(' ')));
    }
    EXPECT_EQ(noted, line.noted) << line.like;
    std::vector<std::string> refused;
    for (const auto& problem : translation.problems) refused.push_back(problem.param);
    EXPECT_EQ(refused, line.refused) << line.like;
  }
}

std::string ticked(std::string_view names) {
  std::string out;
  for (const auto& name : split(names)) out += (out.empty() ? "`" : " `") + name + "`";
  return out;
}

/// The rows of docs/from-vllm.md that the tables make.
std::string rows_of(std::span<const NotedFlag> flags) {
  std::string rows;
  for (const auto& flag : flags) rows += "| " + ticked(flag.names) + " | " + std::string(flag.why) + " |\n";
  return rows;
}

std::string rows_of(std::span<const RefusedFlag> flags) {
  std::string rows;
  for (const auto& flag : flags) rows += "| " + ticked(flag.names) + " | " + std::string(flag.advice) + " |\n";
  return rows;
}

std::string rows_of(std::span<const ValueRule> rules, ValueRule::Fate fate) {
  std::string rows;
  for (const auto& rule : rules) {
    if (rule.fate != fate) continue;
    const auto values = rule.values == ">1" ? "above 1" : rule.values == "*" ? "any other" : ticked(rule.values);
    rows += "| " + ticked(rule.names) + " | " + values + " | " + std::string(rule.text) + " |\n";
  }
  return rows;
}

TEST(ForeignFlags, stand_in_the_documentation_as_they_are) {
  std::ifstream file(PAGODA_SOURCE_DIR "/docs/from-vllm.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  for (const auto* server : {&vllm(), &llama_server()}) {
    EXPECT_THAT(page, HasSubstr(rows_of(server->noted)));
    EXPECT_THAT(page, HasSubstr(rows_of(server->refused)));
    EXPECT_THAT(page, HasSubstr(rows_of(server->values, ValueRule::Fate::noted)));
    EXPECT_THAT(page, HasSubstr(rows_of(server->values, ValueRule::Fate::refused)));
    for (const auto& name : server->same) EXPECT_THAT(page, HasSubstr("`" + std::string(name) + "`"));
    for (const auto& flag : server->taken) {
      EXPECT_THAT(page, HasSubstr("| " + ticked(flag.names) + " | `" + std::string(flag.own)));
    }
  }
}

}  // namespace
}  // namespace pagoda::apps
