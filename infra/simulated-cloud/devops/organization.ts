import { appIdOf, secretValueOf } from "../company/applications.ts";
import type { CompanyConnection, CompanyDevops, CompanyProject, CompanyVariableGroup } from "../company/devops.ts";
import { guidFrom } from "../vaults/identifiers.ts";

// The objects of a simulated Azure DevOps organization: projects, variable groups and service connections.

export interface Variable {
  value: string | null;
  isSecret?: boolean;
  /** Whether the secret of the key vault is enabled. Only in a group that is linked to a key vault. */
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

/** Names, in lower case, of the parameters that contain a connection's secret. Responses never contain their values. */
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
    const lowerCaseName = idOrName.toLowerCase();
    return this.projects.find(({ id, name }) => id === lowerCaseName || name.toLowerCase() === lowerCaseName);
  }

  groupNamed(name: string): VariableGroup {
    return findByName([...this.groups.values()], name);
  }

  connectionNamed(name: string): Connection {
    return findByName([...this.connections.values()], name);
  }

  /** Returns the current time, or a later one, so that every change has a different time. */
  now(): string {
    this.#lastChange = Math.max(this.#lastChange + 1, Date.now());
    return new Date(this.#lastChange).toISOString();
  }

  /** Changes a variable group as another user. */
  changeGroup(name: string, change: (group: VariableGroup) => void): void {
    const group = this.groupNamed(name);
    change(group);
    Object.assign(group, { modifiedOn: this.now(), modifiedBy: "Somebody Else" });
  }

  /** Changes a service connection as another user. */
  changeConnection(name: string, change: (connection: Connection) => void): void {
    change(this.connectionNamed(name));
  }

  #reference(name: string): Reference {
    const project = this.project(name);
    if (!project) throw new Error(`Unknown project ${name}`);
    return { id: project.id, name: project.name };
  }

  #addGroup(project: string, { name, description, vault, variables, sharedWith = [] }: CompanyVariableGroup): void {
    // IDs count up from 7, an arbitrary start.
    const id = this.groups.size + 7;
    const toVariable = ([key, value]: [string, CompanyVariableGroup["variables"][string]]): [string, Variable] => {
      if (typeof value === "string") return [key, { value }];
      if ("secret" in value) return [key, { value: value.secret, isSecret: true }];
      return [key, { value: null, isSecret: true, enabled: value.enabled, contentType: "" }];
    };
    this.groups.set(id, {
      id,
      name,
      ...(description !== undefined && { description }),
      type: vault === undefined ? "Vsts" : "AzureKeyVault",
      variables: Object.fromEntries(Object.entries(variables).map(toVariable)),
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
    const commonParameters = { [camelCase ? "tenantId" : "tenantid"]: this.#tenantId, [id]: appIdOf(application) };
    if (signsIn === "federation") {
      return {
        scheme: "WorkloadIdentityFederation",
        parameters: {
          ...commonParameters,
          workloadIdentityFederationIssuer: `https://vstoken.dev.azure.com/${guidFrom(this.name)}`,
          workloadIdentityFederationSubject: `sc://${this.name}/${declared.name}`,
        },
      };
    }
    const certificate = signsIn === "certificate";
    return {
      scheme: "ServicePrincipal",
      parameters: {
        ...commonParameters,
        authenticationType: certificate ? "spnCertificate" : "spnKey",
        [certificate ? "servicePrincipalCertificate" : camelCase ? "servicePrincipalKey" : "serviceprincipalkey"]:
          secret === undefined ? "never-a-secret-that-works" : secretValueOf(application, secret),
      },
    };
  }
}

/** @throws {Error} if no object has the name. */
function findByName<T extends { name: string }>(objects: T[], name: string): T {
  const one = objects.find((each) => each.name === name);
  if (!one) throw new Error(`Azure DevOps has no ${name}`);
  return one;
}

/** Returns a parameter by its name in any case. */
export function parameter({ authorization }: Connection, name: string): string | null | undefined {
  const entry = Object.entries(authorization.parameters).find(([key]) => key.toLowerCase() === name);
  return entry?.[1];
}
