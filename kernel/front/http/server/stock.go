package server

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/policy"
)

// stocks keep workers ready beneath each root; the longest path first.
type stocks []*kernel.Stock

// openStocks opens one for each directory among the roots. They share the memory.
func openStocks(o api.Stock, roots places, log *slog.Logger) (_ stocks, err error) {
	if o.Workers == 0 {
		return nil, nil
	}
	var rooms []string
	for _, r := range roots {
		if !slices.Contains(rooms, r.Path) {
			rooms = append(rooms, r.Path)
		}
	}
	slices.SortFunc(rooms, func(a, b string) int { return len(b) - len(a) })
	var all stocks
	for _, room := range rooms {
		s, err := kernel.OpenStock(kernel.StockOptions{Sessions: room, Way: kernel.StockWay(o.Way), Max: o.Workers, Budget: o.Memory / int64(len(rooms)), Log: stockLog{log}})
		if err != nil {
			all.close()
			return nil, fmt.Errorf("stock: %w", err)
		}
		all = append(all, s)
	}
	return all, nil
}

// of is the one for a session's directory; nil when there is none.
func (s stocks) of(dir string) *kernel.Stock {
	for _, stock := range s {
		if policy.Within(stock.Sessions(), dir) {
			return stock
		}
	}
	return nil
}

func (s stocks) close() {
	for _, stock := range s {
		_ = stock.Close() // it says nothing
	}
}

// stats are those of all together.
func (s stocks) stats() (sum kernel.StockStats) {
	for _, stock := range s {
		n := stock.Stats()
		sum.Ready += n.Ready
		sum.Bytes += n.Bytes
		sum.Made += n.Made
		sum.Given += n.Given
		sum.Missed += n.Missed
		sum.Unfit += n.Unfit
		sum.Failed += n.Failed
	}
	return sum
}

// stockLog takes what a stock has to say into the server's log.
type stockLog struct{ log *slog.Logger }

func (l stockLog) Write(line []byte) (int, error) {
	l.log.Warn("stock", "error", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
