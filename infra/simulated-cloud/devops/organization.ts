import { appIdOf, secretValueOf } from "../company/applications.ts";
import type { CompanyConnection, CompanyDevops, CompanyProject, CompanyVariableGroup } from "../company/devops.ts";
import { guidFrom } from "../vaults/identifiers.ts";

export interface Variable {
  value: string | null;
  isSecret?: boolean;
  /** The key vault of a linked group. */
  enabled?: boolean;
  contentType?: string;
}

export interface Reference {
  id: string;
  name: string;
}

export interface VariableGroup {
  id: number;
  name: string;
  description?: string;
  type: "Vsts" | "AzureKeyVault";
  variables: Record<string, Variable>;
  providerData?: Record<string, unknown>;
  projects: Reference[];
  modifiedOn: string;
  modifiedBy: string;
}

export interface Connection {
  id: string;
  name: string;
  type: string;
  url: string;
  authorization: { scheme: string; parameters: Record<string, string | null> };
  data: Record<string, string>;
  projects: Reference[];
}

export interface Project extends Reference {
  rights: NonNullable<CompanyProject["rights"]>;
}

/** The key of a service connection. Stored, and never returned. */
export const MASKED = new Set(["serviceprincipalkey", "serviceprincipalcertificate", "accesstoken"]);

/** Stores the objects of one Azure DevOps organization in memory. */
export class Organization {
  readonly name: string;
  readonly projects: Project[] = [];
  readonly groups = new Map<number, VariableGroup>();
  readonly connections = new Map<string, Connection>();
  readonly #tenantId: string;
  #lastChange = 0;

  constructor({ organization, projects }: CompanyDevops, tenantId: string) {
    this.name = organization;
    this.#tenantId = tenantId;
    for (const { name, rights = "manage" } of projects) {
      this.projects.push({ id: guidFrom(`devops project ${organization}/${name}`), name, rights });
    }
    for (const project of projects) {
      for (const group of project.groups ?? []) this.#addGroup(project.name, group);
      for (const connection of project.connections ?? []) this.#addConnection(project.name, connection);
    }
  }

  project(idOrName: string): Project | undefined {
    const wanted = idOrName.toLowerCase();
    return this.projects.find(({ id, name }) => id === wanted || name.toLowerCase() === wanted);
  }

  groupNamed(name: string): VariableGroup {
    return found([...this.groups.values()], name);
  }

  connectionNamed(name: string): Connection {
    return found([...this.connections.values()], name);
  }

  /** Returns a time that no other change has, with the resolution of DevOps (100 nanoseconds). */
  now(): string {
    this.#lastChange = Math.max(this.#lastChange + 1, Date.now());
    return new Date(this.#lastChange).toISOString();
  }

  /** Changes an object as another user does in the portal. */
  changeGroup(name: string, change: (group: VariableGroup) => void): void {
    const group = this.groupNamed(name);
    change(group);
    Object.assign(group, { modifiedOn: this.now(), modifiedBy: "Somebody Else" });
  }

  changeConnection(name: string, change: (connection: Connection) => void): void {
    change(this.connectionNamed(name));
  }

  #reference(name: string): Reference {
    const project = this.project(name);
    if (!project) throw new Error(`Unknown project ${name}`);
    return { id: project.id, name: project.name };
  }

  #addGroup(project: string, { name, description, vault, variables, sharedWith = [] }: CompanyVariableGroup): void {
    const id = this.groups.size + 7;
    const read = ([key, value]: [string, CompanyVariableGroup["variables"][string]]): [string, Variable] => {
      if (typeof value === "string") return [key, { value }];
      if ("secret" in value) return [key, { value: value.secret, isSecret: true }];
      return [key, { value: null, isSecret: true, enabled: value.enabled, contentType: "" }];
    };
    this.groups.set(id, {
      id,
      name,
      ...(description !== undefined && { description }),
      type: vault === undefined ? "Vsts" : "AzureKeyVault",
      variables: Object.fromEntries(Object.entries(variables).map(read)),
      ...(vault !== undefined && {
        providerData: { serviceEndpointId: guidFrom(`connection of ${name}`), vault, lastRefreshedOn: this.now() },
      }),
      projects: [project, ...sharedWith].map((one) => this.#reference(one)),
      modifiedOn: this.now(),
      modifiedBy: "Ada Admin",
    });
  }

  #addConnection(project: string, declared: CompanyConnection): void {
    const id = guidFrom(`devops connection ${this.name}/${project}/${declared.name}`);
    this.connections.set(id, {
      id,
      name: declared.name,
      type: declared.type ?? "azurerm",
      url: "https://management.azure.com/",
      authorization: this.#authorization(declared),
      data: {
        subscriptionId: guidFrom(`subscription of ${declared.name}`),
        subscriptionName: "Acme Production",
        environment: "AzureCloud",
        scopeLevel: "Subscription",
        creationMode: declared.creationMode ?? "Manual",
      },
      projects: [this.#reference(project)],
    });
  }

  #authorization(declared: CompanyConnection): Connection["authorization"] {
    const { application, secret, signsIn = "secret", camelCase = false } = declared;
    if (signsIn === "managedIdentity") {
      return { scheme: "ManagedServiceIdentity", parameters: { tenantid: this.#tenantId } };
    }
    const id = camelCase ? "servicePrincipalId" : "serviceprincipalid";
    const shared = { [camelCase ? "tenantId" : "tenantid"]: this.#tenantId, [id]: appIdOf(application) };
    if (signsIn === "federation") {
      return {
        scheme: "WorkloadIdentityFederation",
        parameters: {
          ...shared,
          workloadIdentityFederationIssuer: `https://vstoken.dev.azure.com/${guidFrom(this.name)}`,
          workloadIdentityFederationSubject: `sc://${this.name}/${declared.name}`,
        },
      };
    }
    const certificate = signsIn === "certificate";
    return {
      scheme: "ServicePrincipal",
      parameters: {
        ...shared,
        authenticationType: certificate ? "spnCertificate" : "spnKey",
        [certificate ? "servicePrincipalCertificate" : camelCase ? "servicePrincipalKey" : "serviceprincipalkey"]:
          secret === undefined ? "never-a-secret-that-works" : secretValueOf(application, secret),
      },
    };
  }
}

function found<T extends { name: string }>(all: T[], name: string): T {
  const one = all.find((each) => each.name === name);
  if (!one) throw new Error(`Azure DevOps has no ${name}`);
  return one;
}

/** Returns a parameter by its name in any case. */
export function parameter({ authorization }: Connection, name: string): string | null | undefined {
  const entry = Object.entries(authorization.parameters).find(([key]) => key.toLowerCase() === name);
  return entry?.[1];
}
