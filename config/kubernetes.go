package config

// Kubernetes is a mesh, accessed through the API of its cluster.
type Kubernetes struct {
	Kubeconfig string           `yaml:"kubeconfig" parts:"fixed source connection loop" check:"kubeconfig" doc:"A kubeconfig file, read at the start. If it is empty: within a pod its service account, elsewhere $KUBECONFIG or ~/.kube/config."`
	Context    string           `yaml:"context" parts:"fixed source connection loop" doc:"The context of kubeconfig; its current one if it is empty."`
	ID         string           `yaml:"id" parts:"fixed identity source loop" check:"name" doc:"The mesh's id in the path of an entry, which ends loops; the registry's name if it is empty. Deployments that share a mesh have to call it the same."`
	Timeout    Duration         `yaml:"timeout" default:"10s" check:"timeout" doc:"How long one call may take."`
	Limits     Limits           `yaml:"limits" doc:"What the API server may send."`
	Source     KubernetesSource `yaml:"source" parts:"source" doc:"What of this mesh is read by the bridges from it."`
	Import     KubernetesImport `yaml:"import" parts:"loop" doc:"How services of other registries appear in this mesh."`
}

// KubernetesSource says which objects of a mesh are read.
type KubernetesSource struct {
	Namespaces    []string       `yaml:"namespaces" check:"namespace" filled:"to read none remove the bridges from this mesh" doc:"Namespaces that are read; without it all. One that we may not read costs itself alone."`
	Without       []string       `yaml:"without" check:"kind" filled:"to read all kinds remove it" doc:"Kinds of objects that are not read, so that no right to them is needed: nodes, which hold regions and zones; pods, which hold service keys, subsets and mutual TLS; istio, its ServiceEntries and WorkloadEntries."`
	Keys          KubernetesKeys `yaml:"keys" doc:"Where service keys are."`
	SubsetLabel   string         `yaml:"subsetLabel" parts:"identity source" doc:"The label of Pods and endpoints whose value is their subset; none if it is empty."`
	ExportAll     bool           `yaml:"exportAll" doc:"Export hosts that no key and no name rule asks for too."`
	ClusterDomain string         `yaml:"clusterDomain" default:"cluster.local" check:"domain" doc:"The domain of the cluster's Services."`
}

// KubernetesKeys says where service keys are.
type KubernetesKeys struct {
	Annotation string `yaml:"annotation" default:"xds-bridge/keys" doc:"The annotation of Services, Pods, ServiceEntries and WorkloadEntries that lists service keys, each with @PORT where there are several ports."`
	Label      string `yaml:"label" doc:"A label of the same whose value is an interface; none if it is empty."`
}

// KubernetesImport says how services of other registries appear in a mesh.
type KubernetesImport struct {
	Hosts

	Directory string `yaml:"directory" parts:"fixed connection loop" check:"directory" doc:"Write the ServiceEntries here, as a YAML file each, instead of into the API, where the namespace has to exist, with nothing else in it: for istiod's fs:// or for Git. The API server is not called for that."`

	SubsetLabel string `yaml:"subsetLabel" check:"label" doc:"The label of endpoints by whose values each host has subsets, in a DestinationRule beside its ServiceEntry, such as version. Each subset is a cluster of each proxy. Without it no DestinationRule is written."`
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
