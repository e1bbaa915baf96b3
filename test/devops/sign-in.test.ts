import { expect, test } from "vitest";
import type { ServiceConnection } from "../../shared/devops/response-schemas.ts";
import { signInOf } from "../../shared/devops/service-connections.ts";

const connectionBy = (scheme: string, authenticationType?: string): ServiceConnection => ({
  id: "c0ffee00-0000-4000-8000-000000000001",
  name: "deploy",
  type: "AzureRM",
  data: { creationMode: "Manual" },
  authorization: {
    scheme,
    parameters: {
      tenantid: "T1",
      serviceprincipalid: "A1",
      ...(authenticationType !== undefined && { authenticationType }),
    },
  },
});

test.each<[string, string | undefined, string | undefined]>([
  ["ServicePrincipal", undefined, "secret"],
  ["ServicePrincipal", "spnKey", "secret"],
  ["ServicePrincipal", "spnCertificate", "certificate"],
  ["WorkloadIdentityFederation", undefined, "federation"],
  // An unknown future scheme of Azure DevOps has no secret to replace.
  ["ServicePrincipal", "spnFederation", undefined],
  ["ManagedServiceIdentity", undefined, undefined],
])("how a service connection by %s and %s signs in: %s", (scheme, authenticationType, expected) => {
  const found = signInOf(connectionBy(scheme, authenticationType));
  expect(found).toEqual(expected && { appId: "a1", tenantId: "t1", with: expected, automatic: false });
});
