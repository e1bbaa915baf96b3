/** One property, as the type library prints it. */
export interface TypedProperty {
  name: string;
  /** `string`, `int`, `bool`, `any`, the name of an object, `X[]`, or values as `A | B`; `| string` at the end: others too. */
  type: string;
  flags?: string;
  /** `minValue: 1, maxValue: 7`, `minLength`, `maxLength` */
  modifiers?: string;
}

export interface ObjectType {
  name: string;
  properties: TypedProperty[];
  /** What properties of any other name are. */
  additionalPropertiesType?: string;
}

/** An object of several forms, told apart by the value of one property. */
export interface VariantType {
  /** `endpointType` */
  discriminator: string;
  forms: ObjectType[];
}

export interface ResourceType {
  /** `Microsoft.KeyVault/vaults@2026-02-01` */
  name: string;
  /** One; or several, told apart by the resource's literal name. */
  bodies: ObjectType[];
  objects: Map<string, ObjectType>;
  variants: Map<string, VariantType>;
}

/** By type in lower case. */
export type TypeLibrary = Map<string, ResourceType>;
