import { trust } from "../../../test/support/trust.ts";
import type { Cloud } from "../cloud.ts";

export interface ArmResponse {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: each test checks the fields that it expects.
  body: any;
}

/** Sends one request. `version` is the API version. */
export type ArmCall = (method: string, path: string, version: string, body?: unknown) => Promise<ArmResponse>;

/** Returns a function that calls the simulated Azure Resource Manager with a token of the service's managed identity. */
export async function armClient(cloud: Cloud): Promise<ArmCall> {
  const { environment } = cloud;
  trust(environment.NODE_EXTRA_CA_CERTS!);
  const manager = environment.AZURE_RESOURCE_MANAGER_ENDPOINT!;
  const tokenQuery = new URLSearchParams({ "api-version": "2019-08-01", resource: manager });
  const tokenResponse = await fetch(`${environment.IDENTITY_ENDPOINT}?${tokenQuery}`, {
    headers: { "x-identity-header": environment.IDENTITY_HEADER! },
  });
  const { access_token: token } = (await tokenResponse.json()) as { access_token: string };
  return async (method, path, version, body) => {
    const separator = path.includes("?") ? "&" : "?";
    const answer = await fetch(`${manager}${path}${separator}api-version=${version}`, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body !== undefined && { "content-type": "application/json" }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    return { status: answer.status, headers: answer.headers, body: text === "" ? undefined : JSON.parse(text) };
  };
}
