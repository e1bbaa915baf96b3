import type * as z from "zod";
import { type ProviderCall, syncFailure } from "../failures.ts";
import { exchange, type ProviderAnswer, type ProviderRequest } from "../http.ts";
import type { ProviderDependencies } from "../provider.ts";
import type { KubernetesSecrets, KubernetesSettings } from "./configuration.ts";
import { kubernetesFailure } from "./failures.ts";

/** Calls one API server with one token. */
export interface KubernetesClient {
  /** Path of the namespace's Secrets. */
  readonly secrets: string;
  /** Returns the permission that a call needs, for messages. @param verb such as `patch` */
  grant(verb: string): string;
  /** Sends a request. Returns undefined for 404 if `allowMissing` is true. @throws {SyncFailure} */
  call<T extends z.ZodType>(
    method: ProviderRequest["method"],
    path: string,
    description: Pick<ProviderCall, "operation" | "grant">,
    schema: T,
    request: KubernetesRequest,
  ): Promise<z.infer<T> | undefined>;
}

/** The options of a request. */
export interface KubernetesRequest {
  body?: object;
  /** Content type of the body. Default: the type that `exchange` sends for the body. */
  type?: string;
  /** Default: `application/json`. */
  accept?: string;
  /** Default: false. */
  allowMissing?: boolean;
  signal?: AbortSignal | undefined;
}

/** Creates a client for one configuration. */
export function kubernetesClient(
  { address, caCertificate, namespace }: KubernetesSettings,
  { token }: KubernetesSecrets,
  { outgoing, clock }: ProviderDependencies,
): KubernetesClient {
  const provider = `Kubernetes at ${new URL(address).host}`;

  return {
    secrets: `/api/v1/namespaces/${namespace}/secrets`,
    grant: (verb) => `the verb ${verb} for Secrets in the namespace ${namespace}`,

    async call(method, path, description, schema, request) {
      const call = { ...description, provider };
      const { body, type, accept = "application/json", signal } = request;
      const headers = { accept, authorization: `Bearer ${token}`, ...(type !== undefined && { "content-type": type }) };
      const providerRequest = {
        method,
        headers,
        ...(body && { body }),
        authorities: caCertificate,
        ...(signal && { signal }),
      };
      const answer: ProviderAnswer = await exchange(outgoing, `${address}${path}`, providerRequest, call);
      const reason = (answer.json as { reason?: unknown } | undefined)?.reason;
      if (answer.status === 404 && reason === "NotFound" && request.allowMissing) return undefined;
      if (answer.status < 200 || answer.status > 299) throw kubernetesFailure(answer, call, clock);
      const { data, success } = schema.safeParse(answer.json);
      if (!success) throw syncFailure("badResponse", call, "the answer is not as documented");
      return data;
    },
  };
}
