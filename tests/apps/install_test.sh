#!/bin/sh
# Installs Pagoda into a scratch prefix, then configures, builds and runs examples/embed against it.
# usage: install_test.sh CMAKE BUILD_DIR CONFIG SOURCE_DIR MODEL_DIR GENERATOR [CMAKE_ARGUMENT...]
# Exits 77, which ctest takes for "skipped", where the model is not there.
set -eu
cmake=$1
build=$2
config=$3
source=$4
model=$5
generator=$6
shift 6
if [ ! -e "$model/config.json" ]; then
  echo "skipped: there is no model in $model"
  exit 77
fi
scratch=$build/install_test
rm -rf "$scratch"
"$cmake" --install "$build" --config "$config" --prefix "$scratch/prefix"
"$cmake" -S "$source/examples/embed" -B "$scratch/embed" -G "$generator" -DCMAKE_BUILD_TYPE="$config" \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" "$@"
"$cmake" --build "$scratch/embed"
"$scratch/embed/embed" "$model" "Once upon a time" | tee "$scratch/output"
grep -q '^Once upon a time .' "$scratch/output"
[ "$(grep -c ' tokens in ' "$scratch/output")" -eq 3 ]
"$scratch/prefix/bin/pagoda" --version
