/** Declaration of an Azure DevOps organization. IDs follow from the names. */
export interface CompanyDevops {
  /** The last segment of `https://dev.azure.com/…`. */
  organization: string;
  projects: CompanyProject[];
}

export interface CompanyProject {
  name: string;
  /** The service's permissions in the project. `view`: read only. `none`: lists are denied. Default `manage`. */
  rights?: "manage" | "view" | "none";
  groups?: CompanyVariableGroup[];
  connections?: CompanyConnection[];
}

export interface CompanyVariableGroup {
  name: string;
  description?: string;
  /** The key vault that the group is linked to. Its variables are then secrets of that vault. */
  vault?: string;
  /**
   * A string is a plain value. `{ secret }` is a secret value that can't be read back. Values of a linked group are ignored.
   */
  variables: Record<string, string | { secret: string } | { enabled: boolean }>;
  /** Names of other projects that share the group. */
  sharedWith?: string[];
}

export interface CompanyConnection {
  name: string;
  /** Display name of the application that the connection signs in as. */
  application: string;
  /** Authentication type. Default `secret`: one of the application's client secrets. */
  signsIn?: "secret" | "certificate" | "federation" | "managedIdentity";
  /** Display name of the client secret. Without it the connection has an invalid secret. */
  secret?: string;
  /** Creation mode. Default `Manual`. */
  creationMode?: "Manual" | "Automatic";
  /** Whether parameters are named as `servicePrincipalId`, not `serviceprincipalid`. Azure DevOps has both. Default false. */
  camelCase?: boolean;
  /** A connection type other than `azurerm`, such as `github`. */
  type?: string;
}
