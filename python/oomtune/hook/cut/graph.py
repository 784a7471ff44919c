"""What a forward pass has left behind its outputs."""


def graph_of(outputs, known):
    """(whether a leaf of the graph is none of `known`, whether reentrant checkpointing is in it)"""
    if any(output.grad_fn is None and id(output) not in known for output in outputs):
        return True, False
    pending, seen, reentrant = [output.grad_fn for output in outputs if output.grad_fn is not None], set(), False
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in known:
            return True, reentrant
        reentrant = reentrant or type(node).__name__ == "CheckpointFunctionBackward"
        pending.extend(following for following, _ in node.next_functions if following is not None)
    return False, reentrant
