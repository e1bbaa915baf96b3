/**
 * `npm run first-password`: exchanges the deployer's sign-in to Azure for the first administrator's password. The proof of the
 * identity is a role assignment with a one-time description: Azure Resource Manager records who created it. The command removes
 * the assignment afterward (docs/decisions/0026-first-password.md). The service receives no access token.
 */
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { commandLine } from "../../build/command-line.ts";
import { cloud, readPassword, required, signedInCredential, VAULT_ID } from "./azure-session.ts";

const HELP = `npm run first-password

Sets the first administrator's password to the one on standard input, 12 to 256 characters:
  read -rs PASSWORD && printf %s "$PASSWORD" | npm run first-password

Works once, for the identity that deployed (deployerObjectId), until somebody signed in. Creates a role assignment on the service's
key vault (Key Vault Reader, to yourself) as the proof, and removes it. Needs a sign-in of the Azure CLI, the Azure Developer CLI or
an application that can assign roles there. Exits with 1 if it fails.

Environment variables, outputs of the deployment:
  SERVICE_URL               address of the service
  SERVICE_KEY_VAULT_ID      resource id of the service's key vault
  AZURE_CLOUD, AZURE_AUTHORITY_HOST, AZURE_RESOURCE_MANAGER_ENDPOINT   for a cloud other than the public one`;
commandLine(HELP, {});

/**
 * Key Vault Reader reads no secret's value: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/security
 */
const KEY_VAULT_READER = "21090545-7ca7-4776-b22c-e363652d74d2";
const ASSIGNMENT_VERSION = "2022-04-01";
/**
 * Number of requests to the service, about a minute: it answers 503 with `Retry-After: 5` until Azure shows it the assignment,
 * and 429 to too many requests.
 */
const ATTEMPTS = 12;

const [vaultId, subscriptionId] = required("SERVICE_KEY_VAULT_ID", VAULT_ID);
// Plain HTTP would show the password and the proof to the network.
const [serviceUrl] = required(
  "SERVICE_URL",
  /^(https:\/\/[^/?#@]+|http:\/\/(localhost|127\.0\.0\.1)(:\d+)?(?=[/?#]|$))/,
  "the https address",
);
const password = await readPassword();
const credential = await signedInCredential();
const { token } = await credential.getToken(`${cloud.resourceManager}/.default`);
const { oid, idtyp } = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8")) as {
  oid: string;
  /** `app` for an application. */
  idtyp?: string;
};

const name = randomUUID();
const verifier = randomBytes(32).toString("base64url");
await callAzure("PUT", {
  roleDefinitionId: `/subscriptions/${subscriptionId}/providers/Microsoft.Authorization/roleDefinitions/${KEY_VAULT_READER}`,
  principalId: oid,
  principalType: idtyp === "app" ? "ServicePrincipal" : "User",
  description: `first-password:${createHash("sha256").update(verifier).digest("base64url")}`,
});
try {
  console.log(`The password of ${await setPassword()} is set. Sign in at ${serviceUrl}.`);
} finally {
  await callAzure("DELETE");
}

/** Writes or deletes the role assignment. */
async function callAzure(method: "PUT" | "DELETE", properties?: object): Promise<void> {
  const address = `${cloud.resourceManager}${vaultId}/providers/Microsoft.Authorization/roleAssignments/${name}?api-version=${ASSIGNMENT_VERSION}`;
  const response = await fetch(address, {
    method,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(properties && { body: JSON.stringify({ properties }) }),
  });
  if (!response.ok) throw new Error(`${method} of the role assignment: ${response.status} ${await response.text()}`);
}

/** Sends the proof and the password to the service. Returns the administrator's name. */
async function setPassword(): Promise<string> {
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(`${serviceUrl}/auth/bootstrap/azure`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      redirect: "error",
      body: JSON.stringify({ roleAssignment: name, verifier, password }),
    });
    const answer = await response.text();
    if (response.ok) return (JSON.parse(answer) as { username: string }).username;
    if (![429, 503].includes(response.status) || attempt === ATTEMPTS)
      throw new Error(`The service answered ${response.status}: ${answer}`);
    await wait(Number(response.headers.get("retry-after") ?? 5) * 1000);
  }
}
