import * as z from "zod";
import type { ProviderDefinition } from "../provider.ts";
import { kubernetesClient } from "./client.ts";
import { KubernetesConfiguration, type KubernetesSecrets, type KubernetesSettings } from "./configuration.ts";
import { comparableName, nameProblem } from "./names.ts";
import { kubernetesTarget } from "./target.ts";

const AccessReview = z.object({ kind: z.literal("SelfSubjectAccessReview") });

/**
 * Kubernetes as a provider of sync targets: Secrets of one namespace. `addressMembers` decide where the credentials are sent,
 * and `locationMembers` which target a name refers to. Targets store a mark, which shows their source version.
 */
export const kubernetes: ProviderDefinition<KubernetesSettings, KubernetesSecrets> = {
  id: "kubernetes",
  title: "Kubernetes",
  configuration: KubernetesConfiguration,
  secretMembers: ["token"],
  addressMembers: ["address", "caCertificate"],
  locationMembers: ["address", "namespace"],
  services: {
    // Less than the 1 MiB of a whole Secret: https://kubernetes.io/docs/concepts/configuration/secret
    secret: { nameProblem, comparableName, maxBytes: 1_000_000, storesMark: true },
  },
  regionProblem: (region) => (region === undefined ? undefined : "is not taken: the configuration names the namespace"),
  async check(settings, secrets, deps, signal) {
    const { call } = kubernetesClient(settings, secrets, deps);
    const body = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: { namespace: settings.namespace, verb: "create", resource: "secrets" } },
    };
    const description = { operation: "inspect the configured token", grant: "the role system:basic-user" };
    // Asks which permissions the token has, which changes nothing.
    await call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", description, AccessReview, {
      body,
      signal,
    });
  },
  open: (_to, settings, secrets, deps) => kubernetesTarget(settings, secrets, deps),
};
