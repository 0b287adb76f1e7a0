"""test_viz.py BUILD_FOLDER: pages of `xhat viz` in a headless Chromium: nothing is complained of, search, clicks and keys do what
docs/viz.md says, labels do not overlap, and the page of a large program is small and quick. Skipped where there is no Chromium;
./test --long installs it."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser, chromium

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
XHAT = os.path.join(sys.argv[1], "xhat")
ATTENTION = """op attention(q: f32[B,S,D], k: f32[B,T,D], v: f32[B,T,D]) -> (o) {
  s[b,i,j] = sum(d: q[b,i,d] * k[b,j,d]) / sqrt(f32(D))
  m[b,i] = max(j: s[b,i,j])
  p[b,i,j] = exp(s[b,i,j] - m[b,i])
  o[b,i,d] = sum(j: p[b,i,j] * v[b,j,d]) / sum(j: p[b,i,j])
}
"""
MOST_BYTES = 3_000_000
MOST_SECONDS = 2.0

# Pairs of texts of the graph that cover each other, in the units of the picture.
OVERLAPS = """(() => {
  const texts = [...document.querySelectorAll("#view-graph svg.canvas text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
  const found = [];
  texts.sort((a, b) => a[1].top - b[1].top);
  for (let i = 0; i < texts.length; ++i)
    for (let j = i + 1; j < texts.length && texts[j][1].top < texts[i][1].bottom; ++j) {
      const [a, b] = [texts[i][1], texts[j][1]], w = Math.min(a.right, b.right) - Math.max(a.left, b.left), h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const scale = d3.zoomTransform(graph.svg.node()).k;
      if (w > scale && h > 3 * scale) found.push(texts[i][0] + " / " + texts[j][0]);
    }
  return found;
})()"""
# Texts that stick out of their boxes.
OUTSIDE = """[...document.querySelectorAll("#view-graph .node")].filter((g) => {
  const box = g.querySelector("rect.box").getBoundingClientRect();
  return [...g.querySelectorAll("text")].some((t) => { const r = t.getBoundingClientRect(); return r.left < box.left || r.right > box.right + 1 || r.bottom > box.bottom + 1; });
}).map((g) => g.textContent)"""


def large_program(layers):
    """Residual layers: three definitions each, and more in the backward."""
    weights = ", ".join(f"w{i}: f32[D,D]" for i in range(8))
    lines, last = [], "x"
    for i in range(layers):
        lines += [f"  z{i}[n,d] = sum(k: {last}[n,k] * w{i % 8}[k,d])", f"  a{i}[n,d] = tanh(z{i}[n,d])", f"  h{i}[n,d] = {last}[n,d] + 0.1 * a{i}[n,d]"]
        last = f"h{i}"
    return f"op deep(x: f32[N,D], {weights}) -> (y) {{\n" + "\n".join(lines) + f"\n  y[n,d] = {last}[n,d]\n}}\n"


@unittest.skipUnless(chromium(), "there is no Chromium: apt-get install chromium-headless-shell, or ./test --long")
class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def page(self, name, *options, text=None):
        source = os.path.join(ROOT, "examples", name + ".xh")
        if text:
            source = os.path.join(self.folder.name, name + ".xh")
            with open(source, "w") as file:
                file.write(text)
        made = os.path.join(self.folder.name, name + ".html")
        subprocess.run([XHAT, "viz", source, "-o", made, *options], check=True)
        return made

    def open(self, path):
        self.browser.messages.clear()
        return self.browser.open(path)

    def fine(self):
        self.assertEqual(self.browser.messages, [])

    def head(self):
        return self.browser.ask("document.querySelector('#details h2').textContent")

    def test_every_view_of_small_ops(self):
        b = self.browser
        for name, options, text in (("tanh", (), None), ("softmax", ("--dims", "N=64,D=32"), None), ("batch_norm", (), None),
                                    ("attention", ("--dims", "B=2,S=32,T=32,D=16"), ATTENTION)):
            with self.subTest(name):
                self.open(self.page(name, *options, text=text))
                self.assertEqual(b.ask(OVERLAPS), [])
                self.assertEqual(b.ask(OUTSIDE), [])
                for view in ("kernels", "stash", "passes", "timeline", "about", "graph"):
                    b.click("#tab-" + view)
                    self.assertEqual(b.ask(f"document.getElementById('view-{view}').hidden"), False)
                    self.assertGreater(b.ask(f"document.getElementById('view-{view}').textContent.length"), 40)
                self.assertEqual(b.ask("document.querySelectorAll('.run').length > 0"), bool(options))
                self.assertIn("Permission is hereby granted", b.ask("document.getElementById('licences').textContent"))
                self.fine()

    def test_clicks_search_and_keys(self):
        b = self.browser
        self.open(self.page("batch_norm"))
        b.click("[data-box='n" + str(b.ask("D.nodes.find((n) => n.name === 'mean_sum').id")) + "'] rect")
        self.assertEqual(self.head(), "mean_sum")
        details = b.ask("details.textContent")
        self.assertIn("keeping is cheaper than recomputing", details)
        self.assertIn("to keep", details)
        b.key("/")
        b.type("grad_g")
        self.assertIn("grad_gamma", b.ask("[...hits.querySelectorAll('li')].map((l) => l.textContent).join()"))
        self.assertGreater(b.ask("document.querySelectorAll('.node.hit').length"), 0)
        b.key("Enter")
        self.assertTrue(self.head().startswith("grad_gamma"))
        b.key("Escape")
        self.assertEqual(self.head(), "op batch_norm")
        b.key("/")
        b.type("no_such_thing")
        self.assertIn("nothing", b.ask("hits.textContent"))
        b.key("Escape")
        b.ask("choose({node: D.nodes.find((n) => n.name === 'x').id})")
        b.key("ArrowDown")
        self.assertNotEqual(self.head(), "x")
        before = b.ask("d3.zoomTransform(graph.svg.node()).k")
        b.key("+")
        b.wait(f"d3.zoomTransform(graph.svg.node()).k > {before}")
        b.key("0")
        b.key("2")
        b.click("tr[data-kernel='0']")
        self.assertIn("schedule", b.ask("details.textContent"))
        self.assertIn("source", b.ask("details.textContent"))
        b.key("4")
        b.click(".passes li[data-step='1']")
        self.assertIn("backward", b.ask("[...document.querySelectorAll('.diff td.added')].map((e) => e.textContent).join()"))
        self.assertEqual(b.ask("document.querySelectorAll('.diff td.removed').length >= 1"), True)
        b.key("3")
        self.assertGreater(b.ask("document.querySelectorAll('.plot circle').length"), 2)
        b.key("1")
        b.key("k")
        b.wait("document.body.dataset.laid === '2'")
        self.assertEqual(b.ask("document.querySelectorAll('.node.kernel').length"), b.ask("D.kernels.length"))
        self.assertEqual(b.ask(OVERLAPS), [])
        self.fine()

    def test_hovering_shows_the_relation(self):
        b = self.browser
        self.open(self.page("softmax"))
        at = b.ask("""(() => { const p = [...document.querySelectorAll('.reach')].find((e) => d3.select(e).datum().edges.some((e) => D.nodes[e.to].name === 'y' && D.nodes[e.from].name === 'm'));
            const q = p.getPointAtLength(p.getTotalLength() / 2).matrixTransform(p.getScreenCTM()); return [q.x, q.y]; })()""")
        b.hover(*at)
        self.assertIn("y[n,d] ← m[n]", b.ask("document.getElementById('tip').textContent"))
        self.fine()

    def test_dark_and_light(self):
        b = self.browser
        path = self.page("tanh")
        back = "getComputedStyle(document.body).backgroundColor"
        self.open(path)
        light = b.ask(back)
        b.key("t")
        dark = b.ask(back)
        self.assertNotEqual(light, dark)
        b.scheme("dark")
        self.open(path)
        self.assertEqual(b.ask(back), dark)
        b.scheme("light")
        self.fine()

    def test_lazy_arrays(self):
        b = self.browser
        path = os.path.join(self.folder.name, "lazy.html")
        tests = os.path.join(sys.argv[1], "tests", "xhat_kernel_tests")
        subprocess.run([tests, "--gtest_filter=LazyViz.OfALossWithItsGradients"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "XHAT_LAZY_PAGE": path})
        self.open(path)
        self.assertEqual(b.ask(OVERLAPS), [])
        self.assertEqual(b.ask(OUTSIDE), [])
        for view in ("kernels", "stash", "passes", "timeline", "about", "graph"):
            b.click("#tab-" + view)
            self.assertEqual(b.ask(f"document.getElementById('view-{view}').hidden"), False)
        b.key("/")
        b.type("x1")
        b.key("Enter")
        self.assertEqual(self.head(), "x1")
        self.fine()

    def test_a_large_program(self):
        b = self.browser
        layers = int(os.environ.get("XHAT_VIZ_LAYERS", "333" if os.environ.get("XHAT_TEST_LONG") else "60"))
        path = self.page("deep", "--listed", "4", text=large_program(layers))
        size = os.path.getsize(path)
        self.open(path)
        ready, nodes = float(b.ask("document.body.dataset.ready")), b.ask("D.nodes.length")
        print(f"\n{3 * layers + 1} definitions, {nodes} nodes: {size / 1e6:.2f} MB, takes input after {ready:.0f} ms, graph after {b.ask('graph.layout_ms'):.0f} ms more")
        self.assertLess(size, MOST_BYTES)
        self.assertLess(ready / 1000, MOST_SECONDS)
        self.assertLess(b.ask("graph.layout_ms") / 1000, 10)
        self.assertEqual(b.ask(OVERLAPS), [])
        b.key("/")
        b.type(f"h{layers - 2}")
        b.key("Enter")
        self.assertIn(f"h{layers - 2}", self.head())
        self.fine()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
