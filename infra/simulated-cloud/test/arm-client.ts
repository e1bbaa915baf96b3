import { trust } from "../../../test/support/trust.ts";
import type { Cloud } from "../cloud.ts";

export interface ArmAnswer {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects of an answer.
  body: any;
}

export type ArmCall = (method: string, path: string, version: string, body?: unknown) => Promise<ArmAnswer>;

/** Calls the simulated Azure Resource Manager as the service's own identity. */
export async function armClient(cloud: Cloud): Promise<ArmCall> {
  const { environment } = cloud;
  trust(environment.NODE_EXTRA_CA_CERTS!);
  const manager = environment.AZURE_RESOURCE_MANAGER_ENDPOINT!;
  const asked = new URLSearchParams({ "api-version": "2019-08-01", resource: manager });
  const answered = await fetch(`${environment.IDENTITY_ENDPOINT}?${asked}`, {
    headers: { "x-identity-header": environment.IDENTITY_HEADER! },
  });
  const { access_token: token } = (await answered.json()) as { access_token: string };
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
