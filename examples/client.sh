#!/usr/bin/env bash
# A client of the JSON-lines protocol in plain bash: no curl, no jq. Prints the answer as it comes.
#   examples/client.sh HOST PORT PROMPT [MAX_TOKENS]
set -euo pipefail

if (($# < 3)); then
  echo "usage: client.sh HOST PORT PROMPT [MAX_TOKENS]" >&2
  exit 2
fi
host=$1 port=$2 prompt=$3 max_tokens=${4:-40}

# A text as JSON writes it.
quoted() {
  local text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  text=${text//$'\t'/\\t}
  text=${text//$'\r'/\\r}
  printf '"%s"' "$text"
}

# The text of a member of an event; printf's %b knows what JSON escapes.
member() {
  local pattern="\"$2\":\"(([^\"\\\\]|\\\\.)*)\""
  [[ $1 =~ $pattern ]] && printf '%b' "${BASH_REMATCH[1]//\\\//\/}"
}

exec 3<>"/dev/tcp/$host/$port"
printf '{"id":"1","prompt":%s,"max_tokens":%d,"temperature":0}\n' "$(quoted "$prompt")" "$max_tokens" >&3

printf '%s' "$prompt"
while IFS= read -r line <&3; do
  case $line in
    *'"event":"delta"'*) member "$line" text ;;
    *'"event":"done"'*)
      echo
      exit 0
      ;;
    *'"event":"error"'*)
      echo
      echo "client.sh: $(member "$line" message)" >&2
      exit 1
      ;;
  esac
done
echo "client.sh: the server has gone" >&2
exit 1
