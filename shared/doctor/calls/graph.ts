import { countUnnamedOwners, READ_USERS } from "../../applications/unnamed-owners.ts";
import { graphCommand } from "../commands.ts";
import { type Doctor, firstPage } from "../context.ts";
import type { OutgoingCall } from "../outgoing-call.ts";
import { type Added, off } from "../result.ts";

// The calls to Microsoft Graph in the service's own tenant (PRO).

const PAGE = "permissions-options.md#microsoft-graph-pro";
const READ = "Application.Read.All";
const POLICY = "Policy.Read.ApplicationConfiguration";
const RESOURCE = "Microsoft Graph";

type Work = (doctor: Doctor) => Promise<Added>;

/** Makes a call that needs this permission. */
const withPermission =
  (permission: string, work: Work): OutgoingCall["check"] =>
  async (doctor) => {
    if (!(await doctor.licensed())) return off("Needs a PRO license.");
    const principal = await doctor.principal();
    return [
      await doctor.attempt(
        RESOURCE,
        () => work(doctor),
        () => graphCommand(principal, permission),
      ),
    ];
  };

/** As `withPermission`, for one application of the tenant. */
const onApplication = (permission: string, work: (doctor: Doctor, objectId: string) => Promise<Added>) =>
  withPermission(permission, async (doctor) => {
    const [application] = await doctor.applications();
    if (!application) return { outcome: "notProven", detail: "The tenant has no application with which to try it." };
    return await work(doctor, application.objectId);
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
    check: withPermission(READ, async (doctor) => {
      await doctor.applications();
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
    check: withPermission("User.ReadBasic.All", async (doctor) => {
      const applications = await doctor.applications();
      const unnamed = countUnnamedOwners(applications);
      const command = graphCommand(await doctor.principal(), "User.ReadBasic.All");
      if (unnamed > 0)
        return {
          outcome: "answeredWithBlanks",
          detail: `Microsoft Graph answers without the name and the address of ${unnamed} owners, because the identity may not read users.`,
          remedy: "Grant the service's identity the application permission User.ReadBasic.All of Microsoft Graph.",
          command,
        };
      const owners = applications.flatMap((application) => application.owners ?? []);
      if (owners.some(({ userPrincipalName }) => userPrincipalName !== undefined)) return undefined;
      const held = await doctor.graphPermissions();
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
    check: withPermission("Application.ReadWrite.OwnedBy", async (doctor) => {
      const held = await doctor.graphPermissions();
      const writing = ["Application.ReadWrite.OwnedBy", "Application.ReadWrite.All", "Directory.ReadWrite.All"];
      const permission = writing.find((one) => held.includes(one));
      if (permission === undefined)
        return {
          outcome: "permissionMissing",
          detail: "The identity's token does not have the permission. A token is up to a day older than a grant.",
          remedy: "Grant it, and make the identity's service principal an owner of each application that it rotates.",
          command: graphCommand(await doctor.principal(), "Application.ReadWrite.OwnedBy"),
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
