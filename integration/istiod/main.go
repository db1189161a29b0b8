// Command istiod runs the real istiod of the module version in go.mod on
// plain ports of this machine, without Kubernetes: its configuration is a
// directory of YAML files, which it watches.
//
// Since Istio 1.30 bootstrap.NewServer dereferences a nil multicluster
// controller where it has no Kubernetes client. Istio's own bootstrap tests
// assign an in-memory client to the unexported field Server.kubeClient, and so
// does this program, by reflection. Nothing else differs from pilot-discovery.
// With -kubeconfig it reads a cluster, and nothing differs.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"istio.io/istio/pilot/pkg/bootstrap"
	"istio.io/istio/pkg/activenotifier"
	"istio.io/istio/pkg/config/constants"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/log"
	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "istiod:", err)
		os.Exit(1)
	}
}

func run() error {
	configDir := flag.String("configDir", "", "directory of Istio YAML files, watched")
	meshConfig := flag.String("meshConfig", "", "mesh configuration; where it names configSources, these are read instead of configDir")
	kubeconfig := flag.String("kubeconfig", "", "the cluster whose objects are read, instead of configDir; empty: none")
	grpcAddr := flag.String("grpcAddr", "127.0.0.1:15010", "xDS in plaintext")
	secureAddr := flag.String("secureGRPCAddr", "", "xDS over TLS; empty: none. The CA is read from ROOT_CA_DIR")
	httpAddr := flag.String("httpAddr", "127.0.0.1:8080", "debug API and /ready")
	flag.Parse()

	if err := log.Configure(log.DefaultOptions()); err != nil {
		return err
	}
	args := bootstrap.NewPilotArgs(func(p *bootstrap.PilotArgs) {
		p.PodName = "istiod-test"
		p.ShutdownDuration = time.Second
		p.RegistryOptions.FileDir = *configDir
		p.MeshConfigFile = *meshConfig
		p.RegistryOptions.Registries = nil
		p.RegistryOptions.KubeOptions.DomainSuffix = constants.DefaultClusterLocalDomain
		p.RegistryOptions.KubeOptions.ClusterID = "Kubernetes"
		// Only the Kubernetes config store sets it, and nil makes ambient mode panic.
		p.RegistryOptions.KubeOptions.StatusWritingEnabled = activenotifier.New(false)
		p.ServerOptions = bootstrap.DiscoveryServerOptions{
			HTTPAddr: *httpAddr, GRPCAddr: *grpcAddr, SecureGRPCAddr: *secureAddr,
			TLSOptions: bootstrap.TLSOptions{TLSMinVersion: bootstrap.TLSMinVersion1_2},
		}
	})
	if err := args.Complete(); err != nil {
		return err
	}
	if *kubeconfig != "" {
		args.RegistryOptions.FileDir, args.RegistryOptions.KubeConfig, args.RegistryOptions.Registries = "", *kubeconfig, []string{"Kubernetes"}
	}
	client := memoryKubernetes()
	server, err := bootstrap.NewServer(args, func(s *bootstrap.Server) {
		if *kubeconfig != "" {
			return
		}
		field := reflect.ValueOf(s).Elem().FieldByName("kubeClient")
		reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(client))
	})
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	if err := server.Start(stop); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	close(stop)
	server.WaitUntilCompletion()
	return nil
}

// memoryKubernetes is a Kubernetes API that holds one namespace and for which
// a bearer token test:NAMESPACE:NAME is a valid token of that service account.
func memoryKubernetes() kube.CLIClient {
	client := kube.NewFakeClient(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "istio-system"}})
	client.Kube().(*fake.Clientset).PrependReactor("create", "tokenreviews", review)
	return client
}

func review(action clienttesting.Action) (bool, runtime.Object, error) {
	answer := action.(clienttesting.CreateAction).GetObject().(*authnv1.TokenReview).DeepCopy()
	parts := strings.Split(answer.Spec.Token, ":")
	if len(parts) != 3 || parts[0] != "test" {
		answer.Status = authnv1.TokenReviewStatus{Error: "not a token of this test"}
		return true, answer, nil
	}
	answer.Status = authnv1.TokenReviewStatus{
		Authenticated: true,
		Audiences:     answer.Spec.Audiences,
		User: authnv1.UserInfo{
			Username: "system:serviceaccount:" + parts[1] + ":" + parts[2],
			Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		},
	}
	return true, answer, nil
}
