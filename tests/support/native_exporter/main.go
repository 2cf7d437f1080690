// SPDX-License-Identifier: Apache-2.0

// Two hosts with native histograms, each below the path of its address, for native_recording.py:
//
//	cd COPY_OF_THIS_FOLDER && go mod init exporter
//	go get github.com/prometheus/client_golang@v1.25.0 && go mod tidy && go build
//	./exporter 127.0.0.1:19100
package main

import (
	"math"
	"math/rand"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/model"
)

// Of each host: answers by their status, of which 404 takes no time at all; a histogram of few
// buckets, which makes them wider once there are more; and a classic one, named as OpenTelemetry does.
func exported(name string, seed int64) http.Handler {
	registry := prometheus.NewRegistry()
	answers := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "edge_seconds", Help: "Answers.", NativeHistogramBucketFactor: 1.1,
	}, []string{"code"})
	few := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "edge_few_seconds", Help: "Answers, in few buckets.",
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 40,
	})
	classic := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "edge.classic.duration", Help: "Answers, in buckets of given bounds.",
		Buckets: prometheus.ExponentialBuckets(0.001, 1.1, 60),
	}, []string{"http.status"})
	boot := prometheus.NewGauge(prometheus.GaugeOpts{Name: "node_boot_time_seconds", Help: "Boot."})
	boot.Set(float64(time.Now().Unix() - 1000))
	id := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "edgetune_boot_info", Help: "Id."}, []string{"boot_id"})
	id.WithLabelValues("boot-" + name).Set(1)
	registry.MustRegister(answers, few, classic, boot, id)
	dice, began := rand.New(rand.NewSource(seed)), time.Now()
	go func() {
		for ; ; time.Sleep(20 * time.Millisecond) {
			for number := 0; number < 10; number++ {
				taken := 0.02 * math.Exp(0.6*dice.NormFloat64())
				answers.WithLabelValues("200").Observe(taken)
				classic.WithLabelValues("200").Observe(taken)
				// After 15 s they take from less to more time than before.
				if time.Since(began) > 15*time.Second {
					taken *= math.Exp(dice.NormFloat64())
				}
				few.Observe(taken)
			}
			answers.WithLabelValues("404").Observe(0)
			classic.WithLabelValues("404").Observe(0)
		}
	}()
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func main() {
	// Prometheus asks for protobuf without saying that names may have dots.
	model.NameEscapingScheme = model.NoEscaping
	for number, name := range []string{"10.0.0.0", "10.0.0.1"} {
		http.Handle("/"+name, exported(name, int64(number)))
	}
	panic(http.ListenAndServe(os.Args[1], nil))
}
