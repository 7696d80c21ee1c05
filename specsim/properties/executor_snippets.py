"""Programs that make an executor's calls again."""

from __future__ import annotations

from specsim.adapters.executor import Protocol
from specsim.properties.executor_sequences import Refutation
from specsim.properties.session import Session


def calls_program(session: Session, refutation: Refutation, protocol: Protocol | str) -> str:
    """Return a program that makes a sequence of calls, and prints what each gave and where."""
    head = [session.import_line, ""]
    made = f"executor = {session.target.call_repr(refutation.configuration)}"
    if not refutation.calls or isinstance(protocol, str):
        return "\n".join([*head, made, ""])
    if refutation.calls[0] is None:
        return "\n".join(
            [
                "import torch",
                *head,
                made,
                "kept = []  # an address may be used again after a free",
                f"for _ in range({len(refutation.calls)}):",
                f"    executor.{protocol.step}()",
                f"    held = executor.{protocol.tensor}",
                "    kept.append(held)",
                '    print(f"memory {held.untyped_storage()._cdata:#x}", held.tolist())',
                "    with torch.inference_mode():",
                "        held.fill_(-77)  # what is left as it was shows",
                "",
            ]
        )
    calls = [
        f'    ({call.bs}, torch.{call.dtype}, "{call.device}"),'
        for call in refutation.calls
        if call
    ]
    return "\n".join(
        [
            "import torch",
            *head,
            made,
            "calls = [",
            *calls,
            "]",
            "kept = []  # an address may be used again after a free",
            "for bs, dtype, device in calls:",
            "    with torch.inference_mode():",
            "        for view in kept:",
            "            view.fill_(-77)  # what is left as it was shows",
            f"    view = executor.{protocol.buffer}(",
            "        bs=bs, dtype=dtype, device=torch.device(device)",
            "    )",
            "    kept.append(view)",
            "    memory = view.untyped_storage()",
            "    slots = memory.nbytes() // view.element_size()",
            "    values = None if view.is_meta else view.tolist()",
            "    print(bs, dtype, device, '->', tuple(view.shape), view.dtype, view.device,",
            '          f"memory {memory._cdata:#x} of {slots} slots", values)',
            "",
        ]
    )
