/** An organization of Azure DevOps, as a person writes it down. Ids follow from the names. */
export interface CompanyDevops {
  /** The last part of `https://dev.azure.com/…`. */
  organization: string;
  projects: CompanyProject[];
}

export interface CompanyProject {
  name: string;
  /** What the service may do in it. Default `manage`; `view` changes nothing, `none`: its lists are refused. */
  rights?: "manage" | "view" | "none";
  groups?: CompanyVariableGroup[];
  connections?: CompanyConnection[];
}

export interface CompanyVariableGroup {
  name: string;
  description?: string;
  /** The key vault that it is linked to; its variables are then that vault's secrets. */
  vault?: string;
  /** A text is a plain value, `{ secret }` one that nobody reads again. Of a linked group the values don't count. */
  variables: Record<string, string | { secret: string } | { enabled: boolean }>;
  /** Names of other projects that it is shared with. */
  sharedWith?: string[];
}

export interface CompanyConnection {
  name: string;
  /** The display name of the application that it signs in as. */
  application: string;
  /** Default `secret`: with one of its client secrets. */
  signsIn?: "secret" | "certificate" | "federation" | "managedIdentity";
  /** The client secret's display name; without one it is none that works. */
  secret?: string;
  /** Default `Manual`. */
  creationMode?: "Manual" | "Automatic";
  /** How the parameters' names are written: DevOps answers both. Default false. */
  camelCase?: boolean;
  /** Another type than `azurerm`, such as `github`. */
  type?: string;
}
