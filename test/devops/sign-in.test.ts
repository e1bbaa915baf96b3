import { expect, test } from "vitest";
import type { ServiceConnection } from "../../shared/devops/response-schemas.ts";
import { signInOf } from "../../shared/devops/service-connections.ts";

// How a service connection of Azure DevOps signs in to Azure, by its authorization scheme and the parameter
// `authenticationType`. Only a connection that signs in with a secret gets the new secret of a rotation.

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
])(
  "a service connection with the scheme %s and the authentication type %s signs in with: %s",
  (scheme, authenticationType, expected) => {
    const signIn = signInOf(connectionBy(scheme, authenticationType));
    expect(signIn).toEqual(expected && { appId: "a1", tenantId: "t1", with: expected, automatic: false });
  },
);
