"""Reads a file's statements for the names that they bind, change and use.

Standard library only; nothing is executed here.
"""

from __future__ import annotations

import ast
import copy
import symtable
from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
_INNER_SCOPES = (
    *DEFINITIONS,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement may bind in its own scope.

    Whatever a branch of it binds counts; what happens inside functions and classes does not.
    A star import gives ``"*"``.
    """
    names: set[str | None] = set()
    for node in _own_scope(statement):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {imported_as(alias) for alias in node.names}
        elif isinstance(node, (*DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping):
            names.add(node.rest)
    return {name for name in names if name is not None}


def changed_names(statement: ast.stmt) -> set[str]:
    """Return the names whose objects a statement changes in place.

    Found are assignments to an item or an attribute, and method calls that stand alone, such
    as ``POOL.append(1)``.
    """
    names = set()
    for node in _own_scope(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            part: ast.expr = node.value.func
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(
            node.ctx, ast.Load
        ):
            part = node
        else:
            continue
        root = part
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name) and root is not part:
            names.add(root.id)
    return names


def used_names(statement: ast.stmt) -> set[str]:
    """Return the module-level names that a statement reads, functions inside it included.

    Annotations don't count: they are not evaluated.
    """
    bare = copy.deepcopy(statement)
    for node in ast.walk(bare):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, FUNCTIONS):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    module = symtable.symtable(ast.unparse(bare), "<statement>", "exec")
    names = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_referenced()}
    tables = list(module.get_children())
    while tables:
        table = tables.pop()
        names |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
        tables += table.get_children()
    return names


def used_attributes(statement: ast.stmt) -> set[str]:
    """Return the attribute names that occur anywhere in a statement."""
    return {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}


def imported_as(alias: ast.alias) -> str:
    """Return the name that one item of an import statement binds."""
    return alias.asname or alias.name.split(".")[0]


def imported_module(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """Return the module that one item of an import statement comes from, as written."""
    if isinstance(statement, ast.Import):
        return alias.name
    return "." * statement.level + (statement.module or "")


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, _INNER_SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _own_scope(child)
