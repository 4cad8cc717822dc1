"""Two transformer blocks with all their matrices, trained for a few steps in numpy, and
in torch: the other sides of benchmarks/programs.py. Nothing of the package is used.

Three texts of four tokens, pre-norm, causal, two heads, tanh MLPs of twice the width,
float64; the rate acts on standard normal weights. Each gradient is applied and
forgotten as it is found, so that memory is that of the matrices and of one gradient: 9
GB and at most 3 GB at width 8,192.
"""

import numpy as np

Y = np.array([1.0, -1.0, 0.5])
TEXTS, S, HEADS = 3, 4, 2
VAR = dict(Q=2.0, K=2.0, V=1.0, O=1.0, A=1.0, B=1.0)
FUTURE = np.triu(np.full((S, S), -np.inf), 1)


def drawn(n, seed=0):
    """Blocks {letter: matrix}, the readout (1, n), tokens (texts, S, n) that are all
    alike to one tenth.
    """
    rng = np.random.default_rng(seed)
    shape = dict.fromkeys("QKVO", (n, n)) | dict(A=(2 * n, n), B=(n, 2 * n))

    def matrix(r, c, var):
        W = rng.standard_normal((r, c))
        W *= np.sqrt(var / c)
        return W

    blocks = [{k: matrix(*shape[k], VAR[k]) for k in shape} for _ in range(2)]
    X = rng.standard_normal((TEXTS, S, n)) + np.sqrt(0.1) * rng.standard_normal(n)
    return blocks, matrix(1, n, 1.0), X


def in_numpy(blocks, r, X, passes, rate):
    """The losses of some passes, with a step after each but the last; the matrices are
    changed in place.
    """
    n = X.shape[-1]
    m = n // HEADS
    flat = lambda x: x.reshape(-1, x.shape[-1])
    cut = lambda x: x.reshape(TEXTS, S, HEADS, m).swapaxes(1, 2)  # (texts, heads, S, m)
    joined = lambda x: x.swapaxes(1, 2).reshape(TEXTS, S, n)

    def norm(x):
        x = x - x.mean(-1, keepdims=True)
        root = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x * root, root

    def norm_back(du, u, root):
        return root * (
            du - du.mean(-1, keepdims=True) - u * (du * u).mean(-1, keepdims=True)
        )

    def step(W, dy, x, var):
        "W ← W − η σ²/c dyᵀx, and what dy was to x before."
        dx = dy @ W
        G = flat(dy).T @ flat(x)
        G *= rate * var / W.shape[1]
        W -= G
        return dx

    losses = []
    for t in range(passes):
        x, kept = X, []
        for w in blocks:
            u, root = norm(x)
            q, k, v = (cut(u @ w[letter].T) for letter in "QKV")
            P = q @ k.swapaxes(-1, -2) / np.sqrt(m) + FUTURE
            a = np.exp(P - P.max(-1, keepdims=True))
            a /= a.sum(-1, keepdims=True)
            o = joined(a @ v)
            x = x + o @ w["O"].T
            z, root2 = norm(x)
            h = np.tanh(z @ w["A"].T)
            x = x + h @ w["B"].T
            kept.append((u, root, q, k, v, a, o, z, root2, h))
        off = x[:, -1] @ r[0] - Y
        losses.append(0.5 * (off**2).sum())
        if t == passes - 1:
            break
        dx = np.zeros_like(x)
        dx[:, -1:] = step(r, off[:, None, None], x[:, -1:], 1.0)
        for w, (u, root, q, k, v, a, o, z, root2, h) in zip(blocks[::-1], kept[::-1]):
            dh = step(w["B"], dx, h, VAR["B"])
            dx = dx + norm_back(step(w["A"], dh * (1 - h * h), z, VAR["A"]), z, root2)
            do = cut(step(w["O"], dx, o, VAR["O"]))
            da = do @ v.swapaxes(-1, -2)
            dP = a * (da - (a * da).sum(-1, keepdims=True)) / np.sqrt(m)
            back = dict(Q=dP @ k, K=dP.swapaxes(-1, -2) @ q, V=a.swapaxes(-1, -2) @ do)
            du = sum(
                step(w[letter], joined(d), u, VAR[letter]) for letter, d in back.items()
            )
            dx = dx + norm_back(du, u, root)
    return losses


def in_torch(blocks, r, X, passes, rate):
    "The same by torch's autograd."
    import torch

    torch.set_num_threads(1)

    def parameter(W, var):
        W = torch.nn.Parameter(torch.from_numpy(W))

        def descend(W):
            W.data.add_(W.grad, alpha=-rate * var / W.shape[1])
            W.grad = None

        W.register_post_accumulate_grad_hook(descend)
        return W

    blocks = [{k: parameter(W, VAR[k]) for k, W in w.items()} for w in blocks]
    r, X, y, future = parameter(r, 1.0), *map(torch.from_numpy, (X, Y, FUTURE))
    n = X.shape[-1]
    norm = lambda x: torch.nn.functional.layer_norm(x, (n,))
    losses = []
    for t in range(passes):
        x = X
        for w in blocks:
            u = norm(x)
            q, k, v = (
                (u @ w[letter].T).view(TEXTS, S, HEADS, -1).transpose(1, 2)
                for letter in "QKV"
            )
            a = torch.softmax(q @ k.mT / (n / HEADS) ** 0.5 + future, -1)
            x = x + (a @ v).transpose(1, 2).reshape(TEXTS, S, n) @ w["O"].T
            x = x + torch.tanh(norm(x) @ w["A"].T) @ w["B"].T
        loss = 0.5 * ((x[:, -1] @ r[0] - y) ** 2).sum()
        losses.append(loss.item())
        if t < passes - 1:
            loss.backward()
    return losses
