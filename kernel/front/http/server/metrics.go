package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
)

// metrics are the server's numbers. No label has a value that a caller chooses.
type metrics struct {
	handler  http.Handler
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
	cells    *prometheus.CounterVec
	seconds  prometheus.Histogram
	opened   prometheus.Counter
	ended    *prometheus.CounterVec
}

func newMetrics(counts func() (sessions, cells int, draining bool), stock stocks) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cellblock_requests_total", Help: "Requests by route and status."}, []string{"route", "status"}),
		refused:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cellblock_refused_total", Help: "Requests that got a problem, by its code."}, []string{"code"}),
		cells:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cellblock_cells_total", Help: "Calls that ended, by outcome: ok, raised, timeout, died, killed, tool."}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "cellblock_cell_seconds", Help: "Time from a call's arrival to its result, waiting included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}}),
		opened: prometheus.NewCounter(prometheus.CounterOpts{Name: "cellblock_sessions_opened_total", Help: "Sessions opened."}),
		ended:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cellblock_sessions_ended_total", Help: "Sessions ended, by cause: asked, idle, shutdown."}, []string{"cause"}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.refused, m.cells, m.seconds, m.opened, m.ended,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("cellblock_sessions", "Sessions that are open.", func() float64 { n, _, _ := counts(); return float64(n) }),
		gauge("cellblock_cells", "Calls that run or wait.", func() float64 { _, n, _ := counts(); return float64(n) }),
		gauge("cellblock_draining", "1 while the server is ending.", func() float64 {
			if _, _, draining := counts(); draining {
				return 1
			}
			return 0
		}))
	if len(stock) > 0 {
		total := func(name, help string, value func(kernel.StockStats) int64) {
			registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(stock.stats())) }))
		}
		registry.MustRegister(gauge("cellblock_stock_ready", "Workers that are ready for sessions to come.", func() float64 { return float64(stock.stats().Ready) }),
			gauge("cellblock_stock_bytes", "Memory of workers that are ready.", func() float64 { return float64(stock.stats().Bytes) }))
		total("cellblock_stock_given_total", "Sessions that got a worker that was ready.", func(s kernel.StockStats) int64 { return s.Given })
		total("cellblock_stock_missed_total", "Sessions that found none ready, and started one.", func(s kernel.StockStats) int64 { return s.Missed })
		total("cellblock_stock_unfit_total", "Sessions that no worker can be kept ready for.", func(s kernel.StockStats) int64 { return s.Unfit })
		total("cellblock_stock_failed_total", "Workers that could not be made or given out.", func(s kernel.StockStats) int64 { return s.Failed })
	}
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

func (m *metrics) request(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

func (m *metrics) refusal(code api.Code) { m.refused.WithLabelValues(string(code)).Inc() }

func (m *metrics) call(r kernel.Result, took time.Duration) {
	m.cells.WithLabelValues(outcome(r)).Inc()
	m.seconds.Observe(took.Seconds())
}

// outcome is how a call ended.
func outcome(r kernel.Result) string {
	if r.Details.Error != nil {
		switch r.Details.Error.Name {
		case kernel.KernelTimeout:
			return "timeout"
		case kernel.KernelExited:
			return "died"
		case kernel.KernelKilled:
			return "killed"
		case kernel.ToolError:
			return "tool"
		}
	}
	if r.IsError {
		return "raised"
	}
	return "ok"
}
