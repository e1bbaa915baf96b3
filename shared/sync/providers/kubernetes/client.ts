import type * as z from "zod";
import { type ProviderCall, syncFailure } from "../failures.ts";
import { exchange, type ProviderAnswer, type ProviderRequest } from "../http.ts";
import type { ProviderDependencies } from "../provider.ts";
import type { KubernetesSecrets, KubernetesSettings } from "./configuration.ts";
import { kubernetesFailure } from "./failures.ts";

/** Calls to one API server with one token. */
export interface KubernetesClient {
  /** The path of the namespace's Secrets. */
  readonly secrets: string;
  /** The right that a call needs, as people are told of it. @param verb such as `patch` */
  grant(verb: string): string;
  /** Answers undefined for 404, where `allowMissing` says so. @throws {SyncFailure} */
  call<T extends z.ZodType>(
    method: ProviderRequest["method"],
    path: string,
    what: Pick<ProviderCall, "operation" | "grant">,
    schema: T,
    request: KubernetesRequest,
  ): Promise<z.infer<T> | undefined>;
}

export interface KubernetesRequest {
  body?: object;
  /** Of the body; that of `exchange` when left out. */
  type?: string;
  /** `application/json` when left out. */
  accept?: string;
  /** False when left out. */
  allowMissing?: boolean;
  signal?: AbortSignal | undefined;
}

export function kubernetesClient(
  { address, caCertificate, namespace }: KubernetesSettings,
  { token }: KubernetesSecrets,
  { outgoing, clock }: ProviderDependencies,
): KubernetesClient {
  const at = `Kubernetes at ${new URL(address).host}`;

  return {
    secrets: `/api/v1/namespaces/${namespace}/secrets`,
    grant: (verb) => `the verb ${verb} for Secrets in the namespace ${namespace}`,

    async call(method, path, what, schema, request) {
      const call = { ...what, at };
      const { body, type, accept = "application/json", signal } = request;
      const headers = { accept, authorization: `Bearer ${token}`, ...(type !== undefined && { "content-type": type }) };
      const sent = { method, headers, ...(body && { body }), authorities: caCertificate, ...(signal && { signal }) };
      const answer: ProviderAnswer = await exchange(outgoing, `${address}${path}`, sent, call);
      const reason = (answer.json as { reason?: unknown } | undefined)?.reason;
      if (answer.status === 404 && reason === "NotFound" && request.allowMissing) return undefined;
      if (answer.status < 200 || answer.status > 299) throw kubernetesFailure(answer, call, clock);
      const { data, success } = schema.safeParse(answer.json);
      if (!success) throw syncFailure("badResponse", call, "the answer is not as documented");
      return data;
    },
  };
}
