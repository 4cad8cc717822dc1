"""The command: what it writes, what it says, and what it does when it is stopped."""

import json
import os
import signal
import subprocess
import sys
import warnings

import pytest

from infattn_nb import from_config, train
from infattn_nb.huggingface import infattn_train, rate_transfer, transfer
from infattn_nb.huggingface.train_command import letters_of, model_of, schedule_of

SMALL = dict(
    model_type="gpt2", n_embd=32, n_head=2, n_layer=1, n_positions=16, vocab_size=900
)
TEXT = "to be or not to be"
HOW = dict(widths="32,48", learning_rates="1e-2,3e-2", steps="3", tokens="12")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    return tmp_path


def command(**options):
    infattn_train.__wrapped__("config.json", **dict(text=TEXT) | HOW | options)


@pytest.mark.long
def test_it_writes_what_rate_transfer_returns(here, capsys):
    command(out="a.json,a.png,a.csv", quiet=True)
    assert capsys.readouterr().out == ""
    texts, letters = letters_of(TEXT, 12)
    found = rate_transfer(
        model_of("config.json", letters),
        texts,
        [32, 48],
        [0.01, 0.03],
        steps=3,
        verbose=False,
    )
    written = json.loads((here / "a.json").read_text())
    assert written == found.numbers()
    assert written["config"] == "config.json"
    assert written["steps"] == 3
    assert (here / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert (here / "a.csv").read_text() == found.table.to_csv()
    assert sorted(p.name for p in here.iterdir()) == [
        "a.csv",
        "a.json",
        "a.png",
        "config.json",
    ]


@pytest.mark.long
def test_it_prints_a_table_and_the_best_rates(here, capsys):
    command()
    said = capsys.readouterr().out
    assert "learning rate" in said
    assert "best rate at width 32: " in said
    command(json=True)
    assert json.loads(capsys.readouterr().out)["widths"] == [32, 48]


def test_letters_are_cut_into_texts():
    texts, letters = letters_of("abcab", 2)
    assert texts == [[0, 1], [2, 0]]  # a last letter alone has nothing to predict
    assert letters == 3
    assert model_of("gpt2", 3, 2)["n_layer"] == 2
    assert model_of("gpt2", 3)["vocab_size"] == 3


@pytest.mark.long
def test_interrupted_it_writes_what_is_finished(here, monkeypatch, capsys):
    calls = []

    def interrupted(*args, **how):
        calls.append(args)
        if len(calls) == 4:
            how["callback"] = lambda step: signal.raise_signal(signal.SIGINT)
        return train(*args, **how)

    monkeypatch.setattr(transfer, "train", interrupted)
    with pytest.raises(SystemExit) as ended:
        command(out="a.json,a.png")
    assert ended.value.code == 130
    assert "interrupted; 3 of 4 runs are finished" in capsys.readouterr().err
    written = json.loads((here / "a.json").read_text())
    assert written["interrupted"]
    assert written["loss"][1][1] == [None, None]
    assert None not in written["loss"][1][0]
    assert (here / "a.png").exists()


def test_interrupted_at_once_it_writes_nothing(here, monkeypatch, capsys):
    def interrupted(*args, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "train", interrupted)
    with pytest.raises(SystemExit) as ended:
        command(out="a.json")
    assert ended.value.code == 130
    assert "nothing was written" in capsys.readouterr().err
    assert not (here / "a.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(text=None), "`text` must be given"),
        (dict(tokens="17", text=TEXT), "allow for a text of 17 tokens"),
        (dict(widths="32,x"), "`--widths` must be numbers separated by commas"),
        (dict(steps="many"), "`--steps` must be a whole number"),
        (dict(out="a.doc"), "`out` must end in"),
        (dict(learning_rates="1e9", optimizer="sgd"), "`--learning-rates` must cont"),
        (dict(adapters="33"), "`rank` must be at most 32 for"),
        (dict(adapters="no.json"), "be the path of an adapter_config.json, got no."),
        (dict(adapters="2", rate_ratio="√n"), "`--rate-ratio` must be"),
    ],
)
def test_bad_input_is_one_sentence_and_no_file(options, said, here):
    before = sorted(here.iterdir())
    with pytest.raises(SystemExit, match=said) as ended:
        command(**dict(out="a.json") | options)
    assert str(ended.value).startswith("infattn_train: ")
    assert "\n" not in str(ended.value)
    assert sorted(here.iterdir()) == before


def test_a_schedule_is_a_function_of_the_step():
    assert schedule_of("constant", 0, 10) is None
    rise = [schedule_of("linear", 2, 6)(t) for t in range(6)]
    assert rise == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    half = schedule_of("cosine", 0, 4)
    assert [round(half(t), 9) for t in (0, 2)] == [1.0, 0.5]


def test_options_change_the_training(here, capsys):
    "Each of them reaches `train`, and the last lines state the answer."
    peft = dict(peft_type="LORA", r=2, lora_alpha=1, target_modules=["c_attn"])
    (here / "peft.json").write_text(json.dumps(peft))
    losses = []
    for more in (
        {},
        dict(weight_decay=".5"),
        dict(clip_norm=".01"),
        dict(warmup="2"),
        dict(schedule="linear"),
        dict(optimizer="sgd"),
        dict(optimizer="sgd", momentum=".9"),
        dict(adapters="2"),
        dict(adapters="2", rate_ratio="4"),
        dict(adapters="peft.json"),
    ):
        command(json=True, **more)
        losses.append(json.loads(capsys.readouterr().out)["loss"])
    assert len({json.dumps(x) for x in losses}) == len(losses)
    command()
    assert "at 48" in " ".join(capsys.readouterr().out.split())[-200:]


def test_a_check_writes_and_prints(here, capsys):
    command(check=True, out="a.json,a.png,a.csv")
    said = " ".join(capsys.readouterr().out.split())
    written = json.loads((here / "a.json").read_text())
    assert written["verdict"] in said
    assert written["widths"] == [32, 48]
    assert written["steps"] == [1, 3]


@pytest.mark.slow
def test_it_starts_as_a_module(here):
    call = [sys.executable, "-m", "infattn_nb", "train", "config.json", "--text", TEXT]
    more = (
        "--widths 32 --learning-rates 1e-2 --steps 1 --tokens 12 --out a.json".split()
    )
    run = subprocess.run([*call, *more], text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
    assert "best rate at width 32: 0.01" in run.stdout
    assert json.loads((here / "a.json").read_text())["widths"] == [32]
    wrong = subprocess.run([*call, "--steps", "x"], text=True, capture_output=True)
    assert wrong.returncode == 1
    assert wrong.stderr.count("\n") == 1


@pytest.mark.long
def test_the_rate_at_a_width_that_was_not_trained(here, capsys):
    command(at="48", quiet=True, json=True, widths="32", learning_rates="1e-2")
    assert json.loads(capsys.readouterr().out)["rate"] is None
    command(at="64", learning_rates="1e-2,1", parametrization="mup", size="3")
    said = " ".join(capsys.readouterr().out.split())
    assert "at width 64 take 0.01; this width was not trained" in said
    assert "by a factor of 1.33" in said


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("name", ["infattn_train", "infattn_report"])
@pytest.mark.slow
def test_control_c_in_a_terminal(here, name):
    "A bar is shown; Ctrl-C gives one line, 130, and no traceback."
    import fcntl
    import pty
    import struct
    import termios

    config = SMALL | dict(n_embd=64, n_layer=4, n_positions=64)
    (here / "config.json").write_text(json.dumps(config))
    options = dict(
        infattn_train=["--text", TEXT * 9, "--widths", "64,128", "--steps", "200"],
        infattn_report=["--tokens", "16", "--size", "96"],
    )[name]
    module = dict(
        infattn_train="infattn_nb.huggingface.train_command",
        infattn_report="infattn_nb.initialisation.report_command",
    )[name]
    (here / "run.py").write_text(f"from {module} import {name}\n{name}()\n")
    child, terminal = pty.fork()
    if not child:
        argv = [sys.executable, "run.py", "config.json", *options]
        os.execv(sys.executable, argv)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen = b""
    stopped = False
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        seen += read
        if not read:
            break
        if b"%" in seen and not stopped:
            os.write(terminal, b"\x03")
            stopped = True
    _, status = os.waitpid(child, 0)
    said = seen.decode(errors="replace")
    assert stopped, said
    assert os.waitstatus_to_exitcode(status) == 130
    assert "Traceback" not in said
    assert f"{name}: interrupted" in said


def test_a_mixture_of_experts_is_trained():
    "Two widths, and one sentence on what is left out of the loss."
    shape = dict(hidden_size=16, intermediate_size=16, num_attention_heads=2)
    mixture = dict(model_type="olmoe", num_experts=4, num_experts_per_tok=2)
    mixture |= shape | dict(num_key_value_heads=2, num_hidden_layers=1)
    mixture |= dict(output_router_logits=True, router_aux_loss_coef=0.01)
    texts, letters = letters_of("abcabbca")
    model = model_of(mixture, letters)
    with pytest.warns(UserWarning, match="without the auxiliary loss of the routers"):
        net = from_config(model, texts)
        net.program(readout="lm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rate_transfer(model, texts, [16, 32], [1e-2], steps=10, verbose=False)
    assert (found.mean < found.start.mean()).all()
