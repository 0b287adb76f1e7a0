"""A model of ONNX as a program of the language: each node by the function that is registered for its op.

Shapes are those of the model and its data. What decides a shape (the `shape` of Reshape, `axes`, `pads`) is taken as it stands in the data, as a
compiler with static shapes does; `Import.taken` lists such inputs. Nodes that only compute such values are evaluated by onnx.reference.
"""

import numpy as np
import onnx
from onnx import numpy_helper

from graph import Graph, NotExpressible, Tensor, kind_of

OPS = {}  # name of an op: function of a Node that gives a tensor, or several


def op(*names):
    def register(function):
        OPS.update((name, function) for name in names)
        return function

    return register


def dtype_of(elem_type):
    names = {v: k for k, v in onnx.TensorProto.DataType.items()}
    if names[elem_type].startswith(("FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2")):
        raise NotExpressible("types of 8 bits and fewer: f8, f4, i4, i2")
    return onnx.helper.tensor_dtype_to_np_dtype(elem_type)


class Node:
    """What an importer sees of a node."""

    def __init__(self, scope, proto):
        self.scope, self.proto, self.graph = scope, proto, scope.graph
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        self.version = scope.versions.get(proto.domain, 0)

    @property
    def name(self):
        return next(o for o in self.proto.output if o)

    def __len__(self):
        return len(self.proto.input)

    def has(self, i):
        return i < len(self.proto.input) and self.proto.input[i] != ""

    def wants(self, i):
        return i < len(self.proto.output) and self.proto.output[i] != ""

    def __getitem__(self, i):
        """An input, or None."""
        return self.scope.tensor(self.proto.input[i]) if self.has(i) else None

    def inputs(self):
        return [self[i] for i in range(len(self))]

    def known(self, i, default=None):
        """The value of an input, taken from the model or its data."""
        return self.scope.known(self.proto.input[i]) if self.has(i) else default

    def ints(self, attribute, i=None, default=None):
        """Whole numbers that are an attribute in some versions of an op, and an input in others."""
        if attribute in self.attributes:
            value = self.attributes[attribute]
            return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)]
        if i is not None and self.has(i):
            return [int(v) for v in self.known(i).reshape(-1)]
        return default

    def get(self, attribute, default=None):
        value = self.attributes.get(attribute, default)
        return value.decode() if isinstance(value, bytes) else value

    def declared(self, i):
        """The shape that the model declares for an output."""
        shape = self.scope.run.declared.get(self.proto.output[i])
        if shape is None or any(e is None for e in shape):
            raise NotExpressible("shapes that depend on data")
        return shape

    def axis(self, rank, default=None, attribute="axis"):
        axis = int(self.get(attribute, default))
        return axis + rank if axis < 0 else axis

    def define(self, kind, shape, body, name=None):
        return self.graph.define(kind, shape, body, name or self.name)


class Scope:
    """Names of a graph of nodes, or of one inside of it."""

    def __init__(self, graph, proto, versions, run, outer=None, given=()):
        self.graph, self.versions, self.run, self.outer = graph, versions, run, outer
        self.producer = {o: n for n in proto.node for o in n.output if o}
        self.tensors, self.values = {}, {}
        for t in proto.initializer:
            self.values[t.name] = numpy_helper.to_array(t)
        self.tensors.update(given)

    def owner(self, name):
        scope = self
        while scope and not (name in scope.tensors or name in scope.values or name in scope.producer):
            scope = scope.outer
        if scope is None:
            raise KeyError(name)
        return scope

    def tensor(self, name):
        scope = self.owner(name)
        if name not in scope.tensors:
            if name in scope.values:
                scope.tensors[name] = self.graph.constant(scope.values[name], name)
            else:
                scope.make(scope.producer[name])
        return scope.tensors[name]

    def make(self, proto):
        if proto.op_type in FOLDED or all(self.is_constant(i) for i in proto.input if i) and proto.op_type not in OPS_OF_GRAPHS:
            results = [self.graph.constant(v, o) for o, v in zip(proto.output, self.fold(proto))]
        elif proto.op_type in OPS:
            results = OPS[proto.op_type](Node(self, proto))
        else:
            raise NotExpressible({"ImageDecoder": "files of images"}.get(proto.op_type, f"op {proto.op_type}"))
        results = [results] if isinstance(results, Tensor) else results
        self.tensors.update((o, r) for o, r in zip(proto.output, results) if o)

    def is_constant(self, name):
        """Whether the model tells the value."""
        scope = self.owner(name)
        if name in scope.tensors:
            return scope.tensors[name].constant
        if name in scope.values:
            return True
        proto = scope.producer[name]
        return (
            proto.op_type in FOLDED
            or proto.op_type in OPS
            and proto.op_type not in OPS_OF_GRAPHS
            and all(scope.is_constant(i) for i in proto.input if i)
        )

    def known(self, name):
        scope = self.owner(name)
        if name in scope.values:
            return scope.values[name]
        tensor = scope.tensors.get(name)
        if tensor is not None and tensor.value is not None:
            if not tensor.constant:
                self.run.taken.add(name)
            return tensor.value
        if name not in scope.producer:
            raise NotExpressible("shapes that depend on data")
        proto = scope.producer[name]
        scope.values.update((o, v) for o, v in zip(proto.output, scope.fold(proto)) if o)
        return scope.values[name]

    def fold(self, proto):
        """The values of a node whose inputs are known; of Shape and Size, whose input has a shape."""
        if proto.op_type in ("Shape", "Size"):
            shape = self.tensor(proto.input[0]).shape
            if proto.op_type == "Size":
                return [np.array(int(np.prod(shape)), np.int64)]
            attributes = {a.name: a.i for a in proto.attribute}
            return [np.array(shape[attributes.get("start", 0) : attributes.get("end", None)], np.int64)]
        if proto.op_type == "If":
            side = "then_branch" if self.known(proto.input[0]).reshape(-1)[0] else "else_branch"
            body = next(a.g for a in proto.attribute if a.name == side)
            inner = Scope(self.graph, body, self.versions, self.run, self)
            return [inner.known(o.name) for o in body.output]
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in proto.attribute):
            raise NotExpressible("shapes that depend on data")
        feeds = {i: self.known(i) for i in proto.input if i}
        return evaluate(proto, feeds, self.versions)


FOLDED = {"Shape", "Size", "Constant", "ConstantOfShape"}
OPS_OF_GRAPHS = {"If", "Loop", "Scan"}


def evaluate(proto, feeds, versions):
    """A node alone, by the reference implementation."""
    from onnx.reference import ReferenceEvaluator

    infos = [onnx.helper.make_tensor_value_info(i, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for i, v in feeds.items()]
    outputs = [onnx.helper.make_tensor_value_info(o, onnx.TensorProto.UNDEFINED, None) for o in proto.output if o]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([proto], "g", infos, outputs), opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in versions.items()]
    )
    return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, feeds)]


class Import:
    """A model with data for its inputs: `text`, the program; `parameters`, arrays by name; `outputs`, which the program names so."""

    def __init__(self, model, data):
        self.taken = set()  # inputs of which the values became part of the program
        self.declared = {
            o.name: [d.dim_value if d.HasField("dim_value") else None for d in o.type.tensor_type.shape.dim]
            for o in model.graph.output
            if o.type.WhichOneof("value") == "tensor_type"
        }
        versions = {o.domain: o.version for o in model.opset_import}
        graph = Graph()
        given = {}
        for info in model.graph.input:
            if info.type.WhichOneof("value") != "tensor_type":
                raise NotExpressible("sequences and optional values")
            dtype_of(info.type.tensor_type.elem_type)
            value = data.get(info.name)
            if value is None:
                continue
            given[info.name] = graph.tensor(info.name, kind_of(value.dtype), value.shape, value)
        scope = Scope(graph, model.graph, versions, self, given=given)
        outputs = []
        for info in model.graph.output:
            if info.type.WhichOneof("value") != "tensor_type":
                raise NotExpressible("sequences and optional values")
            dtype_of(info.type.tensor_type.elem_type)
            result = scope.tensor(info.name)
            if result.statement is None or result in outputs:  # an input or a constant: a copy is what the program computes
                result = listed(graph, result, info.name) if result.constant else graph.define(result.kind, result.shape, result, info.name)
            outputs.append(result)
        self.outputs = outputs
        self.text, parameters = graph.text("case", outputs)
        self.parameters = {p.name: p.value for p in parameters}
        self.kinds = {p.name: p.kind for p in parameters}


def listed(graph, tensor, name):
    """A tensor that is known, written out element by element."""
    if tensor.size > 64 or not tensor.rank:
        return graph.define(tensor.kind, tensor.shape, tensor, name)
    from graph import literal

    def body(*index):
        text = literal(tensor.value.reshape(-1)[-1], tensor.kind) if tensor.size else literal(0, tensor.kind)
        for position in reversed(range(tensor.size - 1)):
            at = np.unravel_index(position, tensor.shape)
            condition = " && ".join(f"{i} == {n}" for i, n in zip(index, at))
            text = f"if {condition} then {literal(tensor.value[at], tensor.kind)} else {text}"
        return text

    return graph.define(tensor.kind, tensor.shape, body, name)
