package config

// Kubernetes is a mesh, accessed through the API of its cluster.
type Kubernetes struct {
	Kubeconfig string           `yaml:"kubeconfig" parts:"fixed source connection loop" check:"kubeconfig" doc:"A kubeconfig file, read at start. Empty: the service account in a pod; elsewhere $KUBECONFIG or ~/.kube/config."`
	Context    string           `yaml:"context" parts:"fixed source connection loop" doc:"The context of the kubeconfig. Empty: its current context."`
	ID         string           `yaml:"id" parts:"fixed identity source loop" check:"name" doc:"The id of the mesh in marks, which prevents loops. Deployments that share a mesh must use the same id. Empty: the name of the registry."`
	Timeout    Duration         `yaml:"timeout" default:"10s" check:"timeout" doc:"How long one call may take."`
	Limits     Limits           `yaml:"limits" doc:"Limits on what the API server may send."`
	Source     KubernetesSource `yaml:"source" parts:"source" doc:"What the bridges from this mesh read."`
	Import     KubernetesImport `yaml:"import" parts:"loop" doc:"How services of other registries appear in this mesh."`
}

// KubernetesSource says which objects of a mesh are read.
type KubernetesSource struct {
	Namespaces    []string       `yaml:"namespaces" check:"namespace" filled:"to read none remove the bridges from this mesh" doc:"The namespaces to read. Without it, all. A namespace that cannot be read affects only itself."`
	Without       []string       `yaml:"without" check:"kind" filled:"to read all kinds remove it" doc:"Kinds of objects that are not read and require no permission. nodes: regions and zones. pods: service keys, subsets and mutual TLS. istio: ServiceEntries and WorkloadEntries."`
	Keys          KubernetesKeys `yaml:"keys" doc:"Where objects carry service keys."`
	SubsetLabel   string         `yaml:"subsetLabel" parts:"identity source" doc:"The label of Pods and endpoints whose value is the subset. Empty: no subsets."`
	ExportAll     bool           `yaml:"exportAll" doc:"Also export hosts that no service key and no name rule refers to."`
	ClusterDomain string         `yaml:"clusterDomain" default:"cluster.local" check:"domain" doc:"The domain of the cluster's Services."`
}

// KubernetesKeys says where service keys are.
type KubernetesKeys struct {
	Annotation string `yaml:"annotation" default:"xds-bridge/keys" doc:"The annotation of Services, Pods, ServiceEntries and WorkloadEntries that lists service keys. Append @PORT to each key if there are several ports."`
	Label      string `yaml:"label" doc:"The label of the same objects whose value is an interface. Empty: no label."`
}

// KubernetesImport says how services of other registries appear in a mesh.
type KubernetesImport struct {
	Hosts

	Directory string `yaml:"directory" parts:"fixed connection loop" check:"directory" doc:"Write each ServiceEntry as a YAML file into this directory, for fs:// of istiod or for Git. The API server is not called. Empty: ServiceEntries are created in the namespace, which must exist and hold nothing else."`

	SubsetLabel string `yaml:"subsetLabel" check:"label" doc:"The label of endpoints whose values become subsets, such as version. Each ServiceEntry gets a DestinationRule. Each subset is one more cluster in every proxy. Empty: no DestinationRule is written."`
}

// The values of KubernetesSource.Without.
const (
	WithoutNodes = "nodes"
	WithoutPods  = "pods"
	WithoutIstio = "istio"
)

// Settings implements Section.
func (k *Kubernetes) Settings() Settings {
	return Settings{
		Kind: "kubernetes", Title: "Kubernetes", ID: k.ID, Mesh: &k.Import.Hosts, Subsets: k.Source.SubsetLabel != "",
		Limits: k.Limits, Timeout: k.Timeout,
	}
}

func (m KubernetesImport) validate(v *validator, path string) {
	if !namespaceForm.MatchString(m.Namespace) {
		v.errorf(path+".namespace", "must be a Kubernetes namespace, such as xds-bridge (got %q)", m.Namespace)
	}
}
