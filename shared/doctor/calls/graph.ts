import { countUnnamedOwners, READ_USERS } from "../../applications/unnamed-owners.ts";
import { graphCommand } from "../commands.ts";
import type { CheckContext } from "../context.ts";
import type { OutgoingCall } from "../outgoing-call.ts";
import { type Added, off } from "../result.ts";
import { firstPage } from "../sample.ts";

// The calls to Microsoft Graph in the service's own tenant (PRO).

const PAGE = "permissions-options.md#microsoft-graph-pro";
const READ = "Application.Read.All";
const POLICY = "Policy.Read.ApplicationConfiguration";
/** Name of the called resource in results. */
const RESOURCE = "Microsoft Graph";

type Work = (context: CheckContext) => Promise<Added>;

/** Makes a call that needs this permission. */
const withPermission =
  (permission: string, work: Work): OutgoingCall["check"] =>
  async (context) => {
    if (!(await context.licensed())) return off("Needs a PRO license.");
    const principal = await context.principal();
    return [
      await context.attempt(
        RESOURCE,
        () => work(context),
        () => graphCommand(principal, permission),
      ),
    ];
  };

/** Makes a call that needs this permission, for the first application that the tenant lists. */
const onApplication = (permission: string, work: (context: CheckContext, objectId: string) => Promise<Added>) =>
  withPermission(permission, async (context) => {
    const [application] = await context.applications();
    if (!application) return { outcome: "notProven", detail: "The tenant has no application with which to try it." };
    return await work(context, application.objectId);
  });

const DISCOVERY = "Applications: discovery";
const POLICIES = "Rotation: policies for secrets";

export const graphCalls: readonly OutgoingCall[] = [
  {
    id: "graph.listApplications",
    feature: DISCOVERY,
    call: "GET /applications",
    permissions: [READ],
    page: PAGE,
    check: withPermission(READ, async (context) => {
      await context.applications();
    }),
  },
  {
    id: "graph.listServicePrincipals",
    feature: DISCOVERY,
    call: "/servicePrincipals",
    permissions: [READ],
    page: PAGE,
    check: withPermission(READ, async ({ clients, signal }) => {
      await firstPage(clients.graph.servicePrincipals(signal));
    }),
  },
  {
    id: "graph.listOwners",
    feature: DISCOVERY,
    call: "/applications/{id}/owners",
    permissions: [READ],
    page: PAGE,
    check: onApplication(READ, async ({ clients, signal }, objectId) => {
      await clients.graph.owners(objectId, signal);
    }),
  },
  {
    id: "graph.namesOfOwners",
    feature: "Applications: names and addresses of owners",
    call: "GET /applications?$expand=owners",
    permissions: ["User.ReadBasic.All"],
    page: PAGE,
    optional: true,
    check: withPermission("User.ReadBasic.All", async (context) => {
      const applications = await context.applications();
      const unnamed = countUnnamedOwners(applications);
      const command = graphCommand(await context.principal(), "User.ReadBasic.All");
      if (unnamed > 0)
        return {
          outcome: "answeredWithBlanks",
          detail: `Microsoft Graph answers without the name and the address of ${unnamed} owners, because the identity may not read users.`,
          remedy: "Grant the service's identity the application permission User.ReadBasic.All of Microsoft Graph.",
          command,
        };
      const owners = applications.flatMap((application) => application.owners ?? []);
      if (owners.some(({ userPrincipalName }) => userPrincipalName !== undefined)) return undefined;
      const held = await context.graphPermissions();
      if (READ_USERS.some((permission) => held.includes(permission))) return undefined;
      const detail = "The identity's token does not have the permission. No owner is a user so far.";
      return { outcome: "permissionMissing", detail, command };
    }),
  },
  {
    id: "graph.listFederatedCredentials",
    feature: DISCOVERY,
    call: "…/federatedIdentityCredentials",
    permissions: [READ],
    page: PAGE,
    check: onApplication(READ, async ({ clients, signal }, objectId) => {
      await clients.graph.federatedCredentials(objectId, signal);
    }),
  },
  {
    id: "graph.listFederatedApplications",
    feature: DISCOVERY,
    call: "GET /applications",
    permissions: [READ],
    page: PAGE,
    check: withPermission(READ, async ({ clients, signal }) => {
      await firstPage(clients.graph.federatedApplications(signal));
    }),
  },
  {
    id: "graph.applicationsDelta",
    feature: "Applications: changes",
    call: "GET /applications/delta",
    permissions: [READ],
    page: PAGE,
    check: withPermission(READ, async ({ clients, signal }) => {
      await firstPage(clients.graph.changes(undefined, signal));
    }),
  },
  {
    id: "graph.readPolicy",
    feature: POLICIES,
    call: "GET /policies/defaultAppManagementPolicy",
    permissions: [POLICY],
    page: PAGE,
    optional: true,
    check: onApplication(POLICY, async ({ clients, signal, principal }, objectId) => {
      if ((await clients.graph.passwordPolicy(objectId, signal)) !== "unknown") return undefined;
      return {
        outcome: "permissionMissing",
        detail: "Microsoft Graph denies access to the policy for client secrets.",
        remedy: `Grant the service's identity the application permission ${POLICY}, or Policy.Read.All.`,
        command: graphCommand(await principal(), POLICY),
      };
    }),
  },
  {
    id: "graph.addPassword",
    feature: "Rotation",
    call: "POST /applications/{id}/addPassword",
    permissions: ["Application.ReadWrite.OwnedBy"],
    page: PAGE,
    optional: true,
    check: withPermission("Application.ReadWrite.OwnedBy", async (context) => {
      const held = await context.graphPermissions();
      const sufficient = ["Application.ReadWrite.OwnedBy", "Application.ReadWrite.All", "Directory.ReadWrite.All"];
      const permission = sufficient.find((name) => held.includes(name));
      if (permission === undefined)
        return {
          outcome: "permissionMissing",
          detail: "The identity's token does not have the permission. A token is up to a day older than a grant.",
          remedy: "Grant it, and make the identity's service principal an owner of each application that it rotates.",
          command: graphCommand(await context.principal(), "Application.ReadWrite.OwnedBy"),
        };
      return permission === "Application.ReadWrite.OwnedBy"
        ? {
            detail:
              "The identity must also own each application: GET /api/automation/rotation/apps says which it does.",
          }
        : undefined;
    }),
  },
];
