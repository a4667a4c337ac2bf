// Package telemetry sends what a process measures to where it is looked at: its
// metrics to Prometheus, over the same listener as its health, and metrics and
// traces over OTLP where OpenTelemetry's own variables say so.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	temporalotel "go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"

	"tidewait/internal/health"
)

// Options say what a process is and where its numbers go.
type Options struct {
	Service string // such as tidewait-worker; OTEL_SERVICE_NAME wins
	Version string
	// Address is where metrics and health are served, host:port; port 0 is a free
	// one. Empty: nowhere.
	Address string
	Health  *health.Health
	Log     *slog.Logger
	// Env reads OpenTelemetry's variables; nil: the process's.
	Env func(string) string
}

// Telemetry is what a process measures with. Close sends what is left.
type Telemetry struct {
	opts     Options
	meters   *sdkmetric.MeterProvider
	tracers  *sdktrace.TracerProvider // nil: nobody takes traces
	registry *prometheus.Registry
	listener net.Listener // nil: nothing is served
	server   *http.Server
}

// Start begins to measure and, where the options say so, to serve. It fails when
// the address cannot be listened at or OpenTelemetry's variables ask for what is
// not there.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	if o.Env == nil {
		o.Env = os.Getenv
	}
	t := &Telemetry{opts: o, registry: prometheus.NewRegistry()}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Log.Warn("telemetry reported an error", "error", err) }))
	sends, err := destinations(o.Env)
	if err != nil {
		return nil, err
	}
	about, err := resource.Merge(resource.NewSchemaless(
		attribute.String("service.name", o.Service), attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", uuid.NewString()), // or several processes would be one series
	), resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if err := t.measure(ctx, about, sends); err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	if o.Address != "" {
		if err := t.serve(); err != nil {
			return nil, errors.Join(err, t.Close(ctx))
		}
	}
	return t, nil
}

// sending says what goes out over OTLP.
type sending struct{ metrics, traces bool }

// destinations reads OpenTelemetry's variables. Nothing is sent unless an endpoint
// is named.
func destinations(env func(string) string) (sending, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return sending{}, nil
	}
	asked := func(signal string) (bool, error) {
		if env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") == "" {
			return false, nil
		}
		switch exporter := env("OTEL_" + signal + "_EXPORTER"); exporter {
		case "", "otlp":
		case "none":
			return false, nil
		default:
			return false, fmt.Errorf("OTEL_%s_EXPORTER is %q: want otlp or none", signal, exporter)
		}
		for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
			if protocol := env(name); protocol != "" && protocol != "http/protobuf" {
				return false, fmt.Errorf("%s is %q: want http/protobuf, which collectors take on port 4318", name, protocol)
			}
		}
		return true, nil
	}
	metrics, err := asked("METRICS")
	traces, err2 := asked("TRACES")
	return sending{metrics, traces}, errors.Join(err, err2)
}

func (t *Telemetry) measure(ctx context.Context, about *resource.Resource, sends sending) error {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(t.registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("export metrics to Prometheus: %w", err)
	}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	options := []sdkmetric.Option{
		sdkmetric.WithResource(about), sdkmetric.WithReader(exporter),
		// The SDK of Temporal measures in seconds, and says nothing of buckets.
		sdkmetric.WithView(sdkmetric.NewView(
			sdkmetric.Instrument{Name: "temporal_*", Kind: sdkmetric.InstrumentKindHistogram},
			sdkmetric.Stream{Aggregation: sdkmetric.AggregationExplicitBucketHistogram{Boundaries: temporalBuckets}},
		)),
	}
	if sends.metrics {
		out, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return fmt.Errorf("send metrics over OTLP: %w", err)
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(out)))
	}
	t.meters = sdkmetric.NewMeterProvider(options...)
	if sends.traces {
		out, err := otlptracehttp.New(ctx)
		if err != nil {
			return fmt.Errorf("send traces over OTLP: %w", err)
		}
		t.tracers = sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(out))
	}
	return nil
}

var temporalBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600}

// Meters is where instruments are made.
func (t *Telemetry) Meters() metric.MeterProvider { return t.meters }

// Temporal has a client of Temporal, and the workers made with it, measure
// themselves and, where traces are sent, trace their workflows.
func (t *Telemetry) Temporal(o *client.Options) error {
	o.MetricsHandler = temporalotel.NewMetricsHandler(temporalotel.MetricsHandlerOptions{
		Meter: t.meters.Meter("temporal-sdk-go"), UseMonotonicCounters: true,
		OnError: func(err error) { t.opts.Log.Warn("a metric of Temporal's SDK was not made", "error", err) },
	})
	if t.tracers == nil {
		return nil
	}
	tracing, err := temporalotel.NewTracingInterceptor(temporalotel.TracerOptions{Tracer: t.Tracer()})
	if err != nil {
		return fmt.Errorf("trace workflows: %w", err)
	}
	o.Interceptors = append([]interceptor.ClientInterceptor{tracing}, o.Interceptors...)
	return nil
}

// Tracer makes spans; where no traces are sent it makes none that count.
func (t *Telemetry) Tracer() trace.Tracer {
	if t.tracers == nil {
		return otel.Tracer("tidewait")
	}
	return t.tracers.Tracer("tidewait")
}

func (t *Telemetry) serve() error {
	listener, err := net.Listen("tcp", t.opts.Address)
	if err != nil {
		return fmt.Errorf("serve metrics at telemetry.address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(t.opts.Log.Handler(), slog.LevelWarn),
	}))
	t.opts.Health.Register(mux)
	t.listener = listener
	t.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(t.opts.Log.Handler(), slog.LevelWarn)}
	go func() {
		if err := t.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.opts.Log.Error("metrics and health are not served any more", "error", err)
		}
	}()
	return nil
}

// URL is where metrics and health are served, or "".
func (t *Telemetry) URL() string {
	if t.listener == nil {
		return ""
	}
	return "http://" + t.listener.Addr().String()
}

// closeTime bounds what is sent at the end.
const closeTime = 5 * time.Second

// Close stops serving and sends what was not sent yet.
func (t *Telemetry) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	var errs []error
	if t.server != nil {
		errs = append(errs, t.server.Close())
	}
	if t.tracers != nil {
		errs = append(errs, t.tracers.Shutdown(ctx))
	}
	if t.meters != nil {
		errs = append(errs, t.meters.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
