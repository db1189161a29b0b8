package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// reconnect is the wait between two connections to istiod.
const reconnect = time.Second

// provider answers with the port it listens at, by which a caller knows it.
type provider struct{ port string }

func (p provider) sayHello(name string) string { return "hello " + name + " from " + p.port }

func provide(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("provide", flag.ContinueOnError)
	listen := flags.String("listen", ":20001", "where calls are answered")
	istiod := flags.String("istiod", "istiod:15010", "istiod's plaintext xDS address")
	host := flags.String("host", "", "this service's host address in the mesh")
	key := flags.String("key", "", "the service key that the host provides")
	if err := flags.Parse(args); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	keys, err := json.Marshal(map[string]string{*key: *host})
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}))
	server.RegisterService(greetService(), provider{port})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	publish(ctx, *istiod, string(keys))
	server.Stop()
	return <-served
}

// publish shows the keys in istiod's debug API, over one connection after
// another, until ctx ends.
func publish(ctx context.Context, istiod, keys string) {
	for ctx.Err() == nil {
		if err := publishOnce(ctx, istiod, keys); ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "greet: istiod:", err)
		}
		select {
		case <-ctx.Done():
		case <-time.NewTimer(reconnect).C:
		}
	}
}

// publishOnce is a stream whose node carries the keys; it lasts as long as the
// connection.
func publishOnce(ctx context.Context, istiod, keys string) error {
	conn, err := grpc.NewClient(istiod, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err == nil {
		err = speak(stream, keys)
	}
	return errors.Join(err, conn.Close())
}

func speak(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, keys string) error {
	metadata, err := structpb.NewStruct(map[string]any{
		"GENERATOR": "grpc", "NAMESPACE": "shop", "CLUSTER_ID": "Kubernetes",
		"LABELS": map[string]any{"DUBBO_GO": keys},
	})
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: "sidecar~192.0.2.1~greet.shop~shop.svc.cluster.local", Metadata: metadata}
	request := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: clusterType, ResourceNames: []string{"none"}}
	for {
		if err := stream.Send(request); err != nil {
			return err
		}
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		request = &discoveryv3.DiscoveryRequest{
			Node: node, TypeUrl: clusterType, ResourceNames: request.GetResourceNames(),
			VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce(),
		}
	}
}
