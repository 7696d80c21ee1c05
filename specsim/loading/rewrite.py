"""Rewrites statements so that what cannot be had here fails where it is used, not before.

Standard library only.
"""

from __future__ import annotations
import __future__

import ast
import copy
import warnings
from collections.abc import Callable, Collection, Mapping
from types import CodeType

from specsim.loading.failures import describe
from specsim.loading.missing import MissingName, MissingNameError
from specsim.loading.names import bound_names, imported_as, imported_module, used_names

_DECORATE, _VALUE = "__specsim_decorate__", "__specsim_value__"
_LOCAL = "__specsim_local_import__"
_KEPT = ("staticmethod", "classmethod", "property")


def compiled(statement: ast.stmt, filename: str, given: Collection[str]) -> CodeType:
    """Compile one statement of a file, its line numbers kept and its annotations unevaluated.

    Decorators, defaults of parameters, values of class attributes and imports inside functions
    go through the helpers of `helpers`, which must be in the namespace that the code runs in.

    Parameters
    ----------
    statement
        A statement of the file's top level; not changed.
    filename
        The file, for tracebacks.
    given
        Names whose values the user gave: an import inside a function does not replace them.
    """
    tree = _Rewriter(given).visit(copy.deepcopy(statement))
    module = ast.fix_missing_locations(ast.Module([tree], []))
    flags = __future__.annotations.compiler_flag
    with warnings.catch_warnings():
        # What the compiler thinks of the style of somebody else's file is no news here.
        warnings.simplefilter("ignore")
        code: CodeType = compile(module, filename, "exec", flags=flags, dont_inherit=True)
    return code


def helpers(given: Mapping[str, object], warn: Callable[[str], None]) -> dict[str, object]:
    """Return what rewritten statements call, by name."""

    def decorate(evaluate: Callable[[], object], text: str) -> Callable[[object], object]:
        def apply(function: object) -> object:
            try:
                return evaluate()(function)  # type: ignore[operator]
            except KeyboardInterrupt:
                raise
            except BaseException as exception:
                name = getattr(function, "__qualname__", repr(function))
                warn(f"decorator @{text} of {name} left out: {reason_of(exception)}")
                return function

        return apply

    def value(evaluate: Callable[[], object], name: str, text: str) -> object:
        try:
            return evaluate()
        except KeyboardInterrupt:
            raise
        except BaseException as exception:
            return MissingName(name, f"{name} = {text} has no value here: {reason_of(exception)}")

    def local_import(name: str, module: str) -> object:
        return given[name] if name in given else missing_import(name, module)

    return {_DECORATE: decorate, _VALUE: value, _LOCAL: local_import}


def missing_import(name: str, module: str) -> MissingName:
    """Return the stand-in for an imported name whose module cannot be imported."""
    return MissingName(name, f"name {name} comes from module {module} that can't be imported here")


def reason_of(exception: BaseException) -> str:
    """Return why something failed, in one line and without advice."""
    if isinstance(exception, MissingNameError):
        return exception.reason
    return describe(exception)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, given: Collection[str]) -> None:
        self.given = given
        self.class_names: set[str] = set()
        self.in_function = False
        self.in_try = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if self.in_function:
            return self.generic_visit(node)
        node.decorator_list = [self._decorator(expr) for expr in node.decorator_list]
        outer, self.class_names = self.class_names, set[str]().union(*map(bound_names, node.body))
        for child in node.body:
            if isinstance(child, (ast.Assign, ast.AnnAssign)) and child.value is not None:
                child.value = self._value(child.value, "/".join(sorted(bound_names(child))))
        node.body = [self.visit(child) for child in node.body]
        self.class_names = outer
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        return self._handled(node)

    def visit_TryStar(self, node: ast.TryStar) -> ast.AST:
        return self._handled(node)

    def visit_Import(self, node: ast.Import) -> ast.AST | list[ast.stmt]:
        return self._import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        return self._import(node)

    def _handled(self, node: ast.AST) -> ast.AST:
        outer, self.in_try = self.in_try, True
        self.generic_visit(node)
        self.in_try = outer
        return node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if not self.in_function:
            node.decorator_list = [self._decorator(expr) for expr in node.decorator_list]
            arguments = node.args
            named = [*arguments.posonlyargs, *arguments.args]
            first = len(named) - len(arguments.defaults)
            for i, expr in enumerate(arguments.defaults):
                arguments.defaults[i] = self._value(expr, named[first + i].arg)
            for i, keyword_default in enumerate(arguments.kw_defaults):
                if keyword_default is not None:
                    parameter = arguments.kwonlyargs[i].arg
                    arguments.kw_defaults[i] = self._value(keyword_default, parameter)
        outer = self.in_function, self.in_try
        self.in_function, self.in_try = True, False
        self.generic_visit(node)
        self.in_function, self.in_try = outer
        return node

    def _decorator(self, expr: ast.expr) -> ast.expr:
        # A lambda doesn't see the names of a class body: such decorators (a property's setter)
        # stay as they are.
        if (isinstance(expr, ast.Name) and expr.id in _KEPT) or self._reads_class(expr):
            return expr
        return self._call(_DECORATE, expr, _thunk(expr), ast.Constant(ast.unparse(expr)))

    def _value(self, expr: ast.expr, name: str) -> ast.expr:
        if isinstance(expr, ast.Constant) or self._reads_class(expr):
            return expr
        text = ast.Constant(ast.unparse(expr))
        return self._call(_VALUE, expr, _thunk(expr), ast.Constant(name), text)

    def _reads_class(self, expr: ast.expr) -> bool:
        return bool(used_names(ast.Expr(expr)) & self.class_names)

    def _import(self, node: ast.Import | ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        """Let an import inside a function fail at the name's use, unless it is handled there."""
        if not self.in_function or self.in_try:
            return node
        new: list[ast.stmt] = []
        for alias in node.names:
            name = imported_as(alias)
            single = copy.copy(node)
            single.names = [alias]
            values = ast.Constant(name), ast.Constant(imported_module(node, alias))
            value = self._call(_LOCAL, node, *values)
            stand_in = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
            if name in self.given:
                new.append(stand_in)
                continue
            handler = ast.ExceptHandler(ast.Name("ImportError", ast.Load()), None, [stand_in])
            new.append(ast.copy_location(ast.Try([single], [handler], [], []), node))
        return new

    def _call(self, helper: str, at: ast.stmt | ast.expr, *arguments: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Call(ast.Name(helper, ast.Load()), list(arguments), []), at)


def _thunk(expr: ast.expr) -> ast.expr:
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.copy_location(ast.Lambda(nothing, expr), expr)
