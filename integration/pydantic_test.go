package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cellblock/kernel"
)

// ordersOfModels takes and returns models of models, in the words that Pydantic 1 and 2 share.
const ordersOfModels = `
import typing
import pydantic
class Line(pydantic.BaseModel):
    item: str
    amount: int = 1
class Order(pydantic.BaseModel):
    number: int
    lines: typing.List[Line]
    note: typing.Optional[str] = None
def total(order: Order, extra: typing.Optional[typing.List[Line]] = None) -> int:
    """Count what is ordered."""
    return sum(l.amount for l in order.lines + (extra or []))
def first(order: Order) -> Line: return order.lines[0]
def both(order: Order): return {"order": order, "lines": order.lines}
cellblock.register(cellblock.Extension(name="shop", tools=[total, first, both]))
`

// pydantics are interpreters of this host that have Pydantic, one of each of its versions.
func pydantics() map[string]string {
	home, _ := os.UserHomeDir()
	more, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", "3.*", "bin", "python3"))
	found := map[string]string{}
	for _, python := range append([]string{systemPython, pythonBin()}, more...) {
		out, err := exec.Command(python, "-c", "import pydantic; print(pydantic.VERSION)").Output()
		if version := strings.TrimSpace(string(out)); err == nil && version != "" && found[version] == "" {
			found[version] = python
		}
	}
	return found
}

var needPydantic = register("pydantic", func() string {
	if len(pydantics()) == 0 {
		return "no interpreter can import it"
	}
	return ""
})

// TestToolsOfPydantic: models of the real Pydantic are arguments and results of tools; what
// is no such model is refused before the tool is called, by its place.
func TestToolsOfPydantic(t *testing.T) {
	require(t, needPydantic)
	for version, python := range pydantics() {
		t.Run(version, func(t *testing.T) {
			e := newExtensible(t, map[string]string{"home/shop.py": ordersOfModels})
			s := open(t, e.options("shop.*"), func(o *kernel.Options) { o.PythonBin = python })
			s.ok("order = {'number': 1, 'lines': [{'item': 'a', 'amount': 40}, {'item': 'b'}]}")
			s.shows("shop.total(order=order)", "41")
			s.shows("shop.total(order=order, extra=[{'item': 'c'}])", "42")
			s.shows("shop.first(order=order)", "{'item': 'a', 'amount': 40}")
			s.shows("shop.both(order=order)['order']['note'], shop.both(order=order)['lines'][1]", "(None, {'item': 'b', 'amount': 1})")
			for code, names := range map[string]string{
				"shop.total(order={'number': 1})":                                          "lines",
				"shop.total(order={'number': 1, 'lines': [{'amount': 1}]})":                "item",
				"shop.total(order={'number': 1, 'lines': [{'item': 'a', 'amount': 'x'}]})": "amount",
				"shop.total(order=[1])":                                                    "order",
			} {
				if r := s.run(code); r.ename() != "HostError" || !strings.Contains(r.text(), "invalid-arguments") || !strings.Contains(r.text(), names) {
					t.Errorf("%s: %s", code, r)
				}
			}
			if help := s.run("help(shop.total)"); !strings.Contains(help.Details.Stdout, "Order") || !strings.Contains(help.Details.Stdout, "Count what is ordered.") {
				t.Errorf("%s", help)
			}
		})
	}
}
