"""What the end of a run of ours says of the GPU, in words."""


def graphs_of(gpus):
    why = f" ({gpus['ungraphed']})" if gpus["ungraphed"] else ""
    launches = f" and {gpus['launch_graphs']} of launches" if gpus["launch_graphs"] else ""
    return f"{gpus['graphs']} graphs{launches}{why}"


def products_of(gpus):
    products = gpus["products"]
    why = f" ({products['why_own']})" if products["why_own"] else ""
    wrong = f"; {products['wrong']}" if products["wrong"] else ""
    return f"{products['cublaslt']} products by cuBLASLt, {products['own']} by own functions{why}{wrong}"


def unrecorded_of(gpus):
    """The first way that was left out of trials because it refused to be recorded."""
    return f"; left out of trials: {gpus['unrecorded']}" if gpus["unrecorded"] else ""


def untried_of(gpus):
    """The first thing that is made in the first of its ways because no trial could be made of them."""
    return f"; not tried: {gpus['untried']}" if gpus["untried"] else ""


def convolutions_of(gpus):
    return ways_of(gpus["convolutions"], [("cudnn", "convolutions by cuDNN"), ("own", "by own functions")])


def attention_of(gpus):
    return ways_of(gpus["attention"], [("cudnn", "calls of attention by cuDNN"),
                                       ("sm90", "by functions for sm_90a"),
                                       ("usual", "by those for every device")])


def ways_of(told, ways):
    """Who makes what may be made in several ways, and why; nothing of models that have none of it."""
    counts = [(told[key], words) for key, words in ways]
    if not any(count for count, _ in counts):
        return ""
    names = ("why_usual", "why_own", "wrong")
    reasons = dict.fromkeys(told[name] for name in names if told.get(name))
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return ", " + ", ".join(f"{count} {words}" for count, words in counts) + why
