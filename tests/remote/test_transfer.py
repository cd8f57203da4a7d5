"""Files of a machine: whole and equal, or not there, whatever breaks on the way."""

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hud_tui.errors import HudMalformed, HudUsage
from hud_tui.remote.engines import ENGINES, Engine, Wish, describe
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.setup import Setup, StepReport
from hud_tui.remote.ssh import Address, LineLost, ScriptFailed, Ssh
from hud_tui.remote.transfer import FarFile, copy_file, list_files
from hud_tui.tinker_options import model_files
from tests.remote.conftest import keeping
from tests.remote.far import Far, cut_line

FAR = Address("far")
LARGE = 3_000_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hud_tui.remote.ssh.backoff", lambda failures: 0.01)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def large(far: Far) -> bytes:
    """The content of a file there: every byte, and what looks like the end of an output."""
    data = random.Random(0).randbytes(LARGE - 20) + b"\n@hud-tui-0 begin\n\0\r\n"
    (far.home / "large").write_bytes(data)
    return data


async def listed(ssh: Ssh, far: Far, name: str = "large") -> FarFile:
    return (await list_files(ssh.check, str(far.home), [name, "none"]))[name]


async def test_a_file_larger_than_any_output_arrives_whole(
    ssh: Ssh, far: Far, large: bytes, here: Path
) -> None:
    target = here / "new/large"
    file = await listed(ssh, far)
    await copy_file(ssh, file, target, print, 60)
    assert target.read_bytes() == large
    assert [one.name for one in target.parent.iterdir()] == ["large"]
    (far.home / "large").unlink()
    await copy_file(ssh, file, target, print, 0)  # what is equal is not copied again


async def test_a_line_that_is_cut_in_the_middle_goes_on_there(
    ssh: Ssh, far: Far, large: bytes, here: Path
) -> None:
    """The final name appears when all of it is there; another program goes on with the draft."""
    target, said = here / "large", list[str]()
    async with cut_line(far.port) as line:
        file = await listed(ssh, far)
        await ssh.aclose()
        far.lead_to(line.port)
        line.lengths = [1_000_000]
        with pytest.raises(LineLost):
            await copy_once(ssh, file, target)
        [name] = os.listdir(here)
        draft = here / name
        part = draft.stat().st_size
        assert 0 < part < LARGE
        assert draft.read_bytes() == large[:part]
        line.lengths = [10, 700_000, 10, 10, 900_000]
        broken = line.broken
        await copy_file(ssh, file, target, said.append, 60)
        assert line.broken == broken + 5
    assert target.read_bytes() == large
    assert os.listdir(here) == ["large"]


async def copy_once(ssh: Ssh, file: FarFile, target: Path) -> None:
    """Until the line breaks for the first time, and no new one can be made."""
    command = ssh.command
    calls = 0

    def once(*options: str, shared: bool = True) -> list[str]:
        nonlocal calls
        calls += 1
        return command(*options, shared=shared) if calls == 1 else ["sh", "-c", "exit 255"]

    ssh.command = once  # type: ignore[method-assign]
    try:
        await copy_file(ssh, file, target, print, 0)
    finally:
        ssh.command = command  # type: ignore[method-assign]


async def test_what_differs_from_the_file_there_is_not_taken(
    ssh: Ssh, far: Far, large: bytes, here: Path
) -> None:
    target, said = here / "large", list[str]()
    file = await listed(ssh, far)
    with pytest.raises(HudMalformed, match="does not arrive as it is there"):
        await copy_file(ssh, replace(file, sha256="0" * 64), target, said.append, 60)
    assert os.listdir(here) == []
    spoilt = here / f".large.{file.sha256[:16]}.part"
    spoilt.write_bytes(bytes(1000))
    (here / ".large.0123456789abcdef.part").write_bytes(b"of an older file")
    said.clear()
    await copy_file(ssh, file, target, said.append, 60)
    again = [line for line in said if not line.startswith("large: ")]  # how far it is, if it takes
    assert again == ["large arrived otherwise than it is there: copied again"]
    assert target.read_bytes() == large
    assert os.listdir(here) == ["large"]


async def test_a_file_that_shrinks_meanwhile_is_not_taken(
    ssh: Ssh, far: Far, large: bytes, here: Path
) -> None:
    file = await listed(ssh, far)
    (far.home / "large").write_bytes(large[:1000])
    with pytest.raises(HudMalformed, match="ended before its size"):
        await copy_file(ssh, file, here / "large", print, 60)
    assert not (here / "large").exists()


async def test_where_it_cannot_be_written_is_said(
    ssh: Ssh, far: Far, large: bytes, here: Path
) -> None:
    (here / "taken").write_text("a file")
    with pytest.raises(HudUsage, match="taken"):
        await copy_file(ssh, await listed(ssh, far), here / "taken/large", print, 0)


async def test_a_machine_without_digests_or_with_nonsense(ssh: Ssh, far: Far, large: bytes) -> None:
    far.tool("sha256sum", "echo nonsense")
    with pytest.raises(HudMalformed, match="cannot be listed") as caught:
        await listed(ssh, far)
    assert "sha256sum" in caught.value.hint
    far.tool("sha256sum", "yes")
    with pytest.raises(HudMalformed):
        await listed(ssh, far)


# The tokenizer of a model, through a whole set-up.


@pytest.fixture
def weighty(monkeypatch: pytest.MonkeyPatch, light: Engine) -> Engine:
    """A server that starts at once, and is given a model."""
    engine = replace(light, weights=True)
    monkeypatch.setitem(ENGINES, "hud-tui", engine)
    return engine


def write_tokenizer(folder: Path) -> dict[str, str]:
    """A tokenizer of some MB; returns some of its tokens' texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    draw = random.Random(0)
    words = [f"{number}-{draw.randbytes(24).hex()}" for number in range(40_000)]
    vocabulary = {"<unk>": 0, **{word: number for number, word in enumerate(words, 1)}}
    words_only = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words_only.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words_only, unk_token="<unk>")
    tokenizer.chat_template = "{{ messages[0].content }}"
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    assert (folder / "tokenizer.json").stat().st_size > 2_400_000
    return {words[-1]: str(len(words)), words[0]: "1"}


async def machine_of(machines: Machines, folder: Path) -> Machine:
    wish = Wish("box", "hud-tui", str(folder), env=sys.prefix)
    return await describe(machines, FAR, wish)


@pytest.fixture
async def undone(machines: Machines) -> AsyncIterator[None]:
    """What a test sets up is undone after it."""
    yield
    async with asyncio.timeout(100):
        setup = Setup(machines, machines.get("box"))
        await setup.undo()
        await setup.aclose()


async def test_a_large_tokenizer_is_loaded_from_its_copy(
    machines: Machines, far: Far, weighty: Engine, undone: None
) -> None:
    transformers: Any = pytest.importorskip("transformers")
    folder = far.home / "model"
    words = write_tokenizer(folder)
    said: list[StepReport] = []
    async with cut_line(far.port) as line:
        far.lead_to(line.port)

        def cut(report: StepReport) -> None:
            said.append(report)
            if (report.step, report.state) == ("tokenizer", "do"):
                line.lengths = [200_000, 50_000, 600_000, 1_800_000]
                line.cut()

        setup = Setup(machines, await machine_of(machines, folder), cut)
        assert (await setup.run({})).ready
        await setup.aclose()
        assert line.lengths == []
        far.lead_to(far.port)
    copy = model_files(machines.files("box"), str(folder))
    names = {one.name for one in folder.iterdir()}
    assert {one.name for one in copy.iterdir()} == names
    for name in names:
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
    tokenizer = transformers.AutoTokenizer.from_pretrained(copy, local_files_only=True)
    assert tokenizer(" ".join(words))["input_ids"] == [int(one) for one in words.values()]
    assert said[-1].text.endswith("each compared with the one there")


async def test_nothing_is_ready_without_its_tokenizer(
    machines: Machines, far: Far, weighty: Engine, undone: None
) -> None:
    folder = far.home / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    setup = Setup(machines, await machine_of(machines, folder))
    with pytest.raises(ScriptFailed, match="holds no tokenizer"):
        await setup.run({})
    assert not machines.get("box").ready
    (folder / "tokenizer.json").write_text("{}")
    os.truncate(folder / "tokenizer.json", 65_000_000)
    with pytest.raises(ScriptFailed, match="65 MB, and 64 MB at most"):
        await setup.run({})
    assert not machines.get("box").ready
    (folder / "tokenizer.json").write_text("{}")
    (folder / "merges.txt").write_text("a b")
    assert (await setup.run({})).ready
    copy = model_files(machines.files("box"), str(folder))
    (folder / "merges.txt").unlink()
    assert (await setup.run({})).ready
    assert {one.name for one in copy.iterdir()} == {"config.json", "tokenizer.json"}
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ScriptFailed):
        await setup.run({})
    assert not machines.get("box").ready, "the server has another model by now"
    await setup.aclose()


async def test_what_differs_is_copied_again_where_it_is_used(
    machines: Machines, far: Far, weighty: Engine, undone: None
) -> None:
    """E.g. what an earlier set-up cut off, and called ready."""
    folder = far.home / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text('{"whole": true}')
    setup = Setup(machines, await machine_of(machines, folder))
    ready = await setup.run({})
    copy = model_files(machines.files("box"), str(folder)) / "tokenizer.json"
    for text in ("", "{", '{"whole": null}'):
        copy.write_text(text)
        await setup.compare_tokenizer()
        assert copy.read_text() == '{"whole": true}'
        assert machines.get("box").ready
    (copy.parent / "merges.txt").write_text("of another model")
    await setup.compare_tokenizer()
    assert {one.name for one in copy.parent.iterdir()} == {"config.json", "tokenizer.json"}
    with machines.alone("box"):
        await setup.compare_tokenizer()  # they are equal: nothing is to be done
        copy.write_text("")
        with pytest.raises(HudUsage, match="at work on box"):
            await setup.compare_tokenizer()
    machines.use(ready, "tinker")
    async with keeping(machines):
        assert copy.read_text() == '{"whole": true}', "before anything trains through the tunnel"
        assert machines.get("box") == ready
    machines.use(None)
    await setup.aclose()


async def test_its_progress_is_shown(
    ssh: Ssh, far: Far, large: bytes, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hud_tui.remote.transfer.TELL_S", 0.0)
    said: list[str] = []
    await copy_file(ssh, await listed(ssh, far), here / "large", said.append, 0)
    assert len(said) > 2
    assert said[-1] == "large: 3.0 MB of 3.0 MB"
