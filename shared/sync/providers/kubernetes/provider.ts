import type { ProviderDefinition } from "../provider.ts";
import { KubernetesConfiguration, type KubernetesSecrets, type KubernetesSettings } from "./configuration.ts";
import { nameProblem, sameName } from "./names.ts";
import { checkKubernetes, kubernetesTarget } from "./target.ts";

export const kubernetes: ProviderDefinition<KubernetesSettings, KubernetesSecrets> = {
  id: "kubernetes",
  title: "Kubernetes",
  configuration: KubernetesConfiguration,
  secretMembers: ["token"],
  addressMembers: ["address", "caCertificate"],
  placeMembers: ["address", "namespace"],
  services: {
    // https://kubernetes.io/docs/concepts/configuration/secret: 1 MiB for a whole Secret, so some less for one value.
    secret: { nameProblem, sameName, maxBytes: 1_000_000, marks: true },
  },
  regionProblem: (region) => (region === undefined ? undefined : "is not taken: the configuration names the namespace"),
  check: checkKubernetes,
  open: (_to, settings, secrets, deps) => kubernetesTarget(settings, secrets, deps),
};
