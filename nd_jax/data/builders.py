"""`tensorflow_datasets` builders of the public program collections, downloaded once and kept.

Read as any tfds dataset is (``as_data_source``; no TensorFlow needed). CRUXEval is the benchmark: its
programs are evaluated on and never trained on.
"""

from pathlib import Path
from typing import Any, cast

import tensorflow_datasets as tfds

from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected, read_programs
from nd_jax.programs.program import Program


class ProgramsBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Programs read from one JSON lines file of the web."""

    VERSION = tfds.core.Version("1.0.0")
    URL: str
    HOMEPAGE: str
    CITATION: str
    SPLIT: str

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        names = ("id", "source", "entry", "arguments", "output")
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(dict.fromkeys(names, text)),
            homepage=self.HOMEPAGE,
            citation=self.CITATION,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        return {self.SPLIT: self._generate_examples(dl_manager.download(self.URL))}

    def _generate_examples(self, path):
        for program in read_programs(Path(path)):
            if isinstance(program, Rejected):
                raise ValueError(f"{self.URL}: {program.place}: {program.reason} {program.detail}")
            yield program.id, {
                "id": program.id, "source": program.source, "entry": program.entry,
                "arguments": program.arguments, "output": program.output or "",
            }  # fmt: skip


class Cruxeval(ProgramsBuilder):
    """CRUXEval: 800 Python functions, each with one input and its output (arXiv 2401.03065)."""

    URL = "https://raw.githubusercontent.com/facebookresearch/cruxeval/main/data/cruxeval.jsonl"
    HOMEPAGE = "https://github.com/facebookresearch/cruxeval"
    CITATION = (
        "Gu et al., CRUXEval: A Benchmark for Code Reasoning, Understanding and Execution, arXiv 2401.03065"
    )
    SPLIT = "test"


class Mbpp(ProgramsBuilder):
    """MBPP: functions with assertions (arXiv 2108.07732); one program a task, from its first assertion."""

    URL = "https://raw.githubusercontent.com/google-research/google-research/master/mbpp/mbpp.jsonl"
    HOMEPAGE = "https://github.com/google-research/google-research/tree/master/mbpp"
    CITATION = "Austin et al., Program Synthesis with Large Language Models, arXiv 2108.07732"
    SPLIT = "train"


def load_programs(builder: type[ProgramsBuilder], data_dir: Path | None = None) -> list[Program]:
    """Give a collection's programs, downloading it first where it is not there yet.

    Args:
      builder: `Cruxeval` or `Mbpp`.
      data_dir: where tfds keeps its datasets; by default its own default, ``~/tensorflow_datasets``.

    Raises:
      UserError: it is not there and could not be downloaded.
    """
    built = builder(data_dir=data_dir, file_format="array_record")
    try:
        built.download_and_prepare()
    except Exception as error:  # Whatever the network, the server or tfds raises, the mend is the same.
        raise UserError(
            f"could not download {builder.__name__} from {builder.URL} ({type(error).__name__}: {error}); "
            "get the file by other means and name it with --data FILE"
        ) from error
    rows = cast(Any, built).as_data_source(split=builder.SPLIT)  # typed as if it took nothing
    fields = ("id", "source", "entry", "arguments", "output")
    return [Program(*(row[name].decode() for name in fields)) for row in rows]
