// The resources and outputs of a deployment, with the values for a sample of parameters. Both languages produce this form.

import type { Finding } from "../expression.ts";
import type { Value } from "./evaluate.ts";

/** A resource that a deployment creates. */
export interface DeployedResource {
  file: string;
  line: number;
  /** Resource type: of Azure in Bicep, of the provider in Terraform. */
  type: string;
  /** Name of the declaration in snake_case. */
  symbol: string;
  /** Id of the scope: of the resource group or subscription, or of the resource that it extends. */
  scope: string;
  /** Properties or arguments. */
  body: { [key: string]: Value };
}

/** A parameter with limits (decorators or validations that reject values), in a deployment with a sample. */
export interface LimitedParameter {
  file: string;
  line: number;
  name: string;
  /** Whether the sample gives the parameter another value than its default. */
  isGiven: boolean;
}

/** Result of a deployment with a sample of parameters. */
export interface Deployment {
  resources: DeployedResource[];
  outputs: { [name: string]: Value };
  /** The parameters with limits or validations, also those of called files and modules. */
  limited: LimitedParameter[];
  /** Expressions that could not be evaluated, and valid values that the templates reject. */
  findings: Finding[];
}

/** Where and by whom a sample is deployed. */
export interface Place {
  tenantId: string;
  subscriptionId: string;
  /** Name of the resource group, if the deployment starts in one. */
  resourceGroup?: string;
  /** Name of the management group, if the deployment starts in one. */
  managementGroup?: string;
  cloud: string;
  deployerObjectId: string;
}
