variable "environment_name" {
  description = "Names the resource group (rg-...) and, with a short hash, every resource in it."
  type        = string

  validation {
    condition     = length(var.environment_name) >= 2 && length(var.environment_name) <= 20
    error_message = "environment_name must have 2 to 20 characters."
  }
}

variable "location" {
  description = "Region of the resources, such as westeurope. Must offer Flex Consumption (az functionapp list-flexconsumption-locations)."
  type        = string

  # Names contain a hash of the spelling, so that both spellings of existing deployments must stay allowed.
  validation {
    condition     = can(regex("^[A-Za-z0-9 ]+$", var.location))
    error_message = "location must be a region, such as westeurope."
  }
}

variable "resource_group_name" {
  description = "Existing resource group for the service. Empty: creates rg-NAME."
  type        = string
  default     = ""
}

variable "azure_cloud" {
  description = "Azure cloud. The provider does not report it, unlike Bicep."
  type        = string
  default     = "AzureCloud"

  validation {
    condition     = contains(["AzureCloud", "AzureUSGovernment", "AzureChinaCloud"], var.azure_cloud)
    error_message = "azure_cloud must be AzureCloud, AzureUSGovernment or AzureChinaCloud."
  }
}

variable "tags" {
  description = "Tags of all resources and resource groups, such as a cost center."
  type        = map(string)
  default     = {}
}

variable "storage_replication" {
  description = "Copies of the stored data: LRS (one zone), ZRS (three zones), GRS or GZRS (also another region)."
  type        = string
  default     = "ZRS"

  validation {
    condition     = contains(["LRS", "ZRS", "GRS", "GZRS"], var.storage_replication)
    error_message = "storage_replication must be LRS, ZRS, GRS or GZRS."
  }
}

variable "customer_managed_key" {
  description = "Encrypts storage with a key of yours, read with an identity that already has access to it, and App Configuration too with the identity's client_id. Null: Microsoft-managed."
  type = object({
    key_vault_resource_id = string
    key_name              = string
    key_version           = optional(string)
    user_assigned_identity = object({
      resource_id = string
      client_id   = optional(string)
    })
  })
  default = null

  validation {
    condition     = var.customer_managed_key == null || can(regex("(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.KeyVault/vaults/[^/]+$", var.customer_managed_key.key_vault_resource_id))
    error_message = "customer_managed_key.key_vault_resource_id must be the resource id of a key vault."
  }

  validation {
    condition     = var.customer_managed_key == null || can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", coalesce(var.customer_managed_key.user_assigned_identity.client_id, "00000000-0000-0000-0000-000000000000")))
    error_message = "customer_managed_key.user_assigned_identity.client_id must be a GUID in lower case."
  }
}

variable "lock" {
  description = "Protects storage account and vault: kind (CanNotDelete) and name of the lock. Null: none."
  type = object({
    kind = string
    name = optional(string)
  })
  default = null

  validation {
    condition     = var.lock == null || can(regex("^CanNotDelete$", var.lock.kind))
    error_message = "lock.kind must be CanNotDelete. ReadOnly would refuse the next deployment."
  }
}

variable "zone_redundant" {
  description = "Whether the instances of the app are spread over the availability zones of the region."
  type        = bool
  default     = false
}

variable "watched_subscription_ids" {
  description = "Subscriptions to monitor. Null: the one deployed to. Empty: a management group grants the permissions (watch/)."
  type        = list(string)
  default     = null

  validation {
    condition     = alltrue([for id in coalesce(var.watched_subscription_ids, []) : can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", id))])
    error_message = "watched_subscription_ids must hold GUIDs in lower case."
  }
}

variable "watch_roles_enabled" {
  description = "Whether to grant the permissions on watched_subscription_ids. False if another team applies watch/."
  type        = bool
  default     = true
}

variable "inventory_reader_role_definition_id" {
  description = "Existing custom role Inventory Reader, as a resource id. Empty: creates one in each monitored subscription."
  type        = string
  default     = ""

  validation {
    condition     = var.inventory_reader_role_definition_id == "" || can(regex("(?i)/providers/Microsoft.Authorization/roleDefinitions/[^/]+$", var.inventory_reader_role_definition_id))
    error_message = "inventory_reader_role_definition_id must be the resource id of a role definition."
  }
}

variable "dependency_reader_role_definition_id" {
  description = "Existing custom role Dependency Reader, as a resource id. Empty: creates one in each monitored subscription."
  type        = string
  default     = ""

  validation {
    condition     = var.dependency_reader_role_definition_id == "" || can(regex("(?i)/providers/Microsoft.Authorization/roleDefinitions/[^/]+$", var.dependency_reader_role_definition_id))
    error_message = "dependency_reader_role_definition_id must be the resource id of a role definition."
  }
}

variable "rotation_resource_group_ids" {
  description = "Ids of resource groups whose apps and API Management the service may refresh after a rotation (PRO). Empty: none."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.rotation_resource_group_ids : can(regex("^/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[^/]+$", id))])
    error_message = "rotation_resource_group_ids must hold ids of resource groups: /subscriptions/.../resourceGroups/..."
  }
}

variable "rotation_operator_role_definition_id" {
  description = "Existing custom role Rotation Operator, as a resource id. Empty: creates one in each of these resource groups."
  type        = string
  default     = ""

  validation {
    condition     = var.rotation_operator_role_definition_id == "" || can(regex("(?i)/providers/Microsoft.Authorization/roleDefinitions/[^/]+$", var.rotation_operator_role_definition_id))
    error_message = "rotation_operator_role_definition_id must be the resource id of a role definition."
  }
}

variable "rotation_key_kinds" {
  description = "Kinds of keys that the service may regenerate, by the id of the resource group (PRO). Empty: none."
  type        = map(list(string))
  default     = {}

  validation {
    condition     = alltrue([for id, kinds in var.rotation_key_kinds : can(regex("^/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[^/]+$", id))])
    error_message = "The keys of rotation_key_kinds must be ids of resource groups: /subscriptions/.../resourceGroups/..."
  }
}

variable "literal_scan_subscription_ids" {
  description = "Subscriptions in which settings are compared with the values of secrets, to find copies (PRO). Empty: none."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.literal_scan_subscription_ids : can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", id))])
    error_message = "literal_scan_subscription_ids must hold GUIDs in lower case."
  }
}

variable "literal_scanner_role_definition_id" {
  description = "Existing custom role Literal Scanner, as a resource id. Empty: creates one in each of these subscriptions."
  type        = string
  default     = ""

  validation {
    condition     = var.literal_scanner_role_definition_id == "" || can(regex("(?i)/providers/Microsoft.Authorization/roleDefinitions/[^/]+$", var.literal_scanner_role_definition_id))
    error_message = "literal_scanner_role_definition_id must be the resource id of a role definition."
  }
}

variable "acme_dns_zone_ids" {
  description = "Ids of DNS zones in which the service proves names to certificate authorities (PRO). Empty: none."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.acme_dns_zone_ids : can(regex("(?i)^/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[^/]+/providers/Microsoft.Network/dnszones/[^/]+$", id))])
    error_message = "acme_dns_zone_ids must hold ids of DNS zones."
  }
}

variable "certificate_vault_ids" {
  description = "Ids of key vaults whose certificates the service may renew (PRO). Empty: none."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.certificate_vault_ids : can(regex("^/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[^/]+/providers/Microsoft.KeyVault/vaults/[^/]+$", id))])
    error_message = "certificate_vault_ids must hold ids of key vaults."
  }
}

variable "bootstrap_admin_username" {
  description = "User name of the first administrator. make-secrets.ts creates the password and stores it in the vault."
  type        = string
  default     = "admin"
}

variable "deployer_object_id" {
  description = "Object id in Entra of who can set the first password. Empty: who deploys. Set it if a pipeline deploys for you."
  type        = string
  default     = ""
}

variable "instance_memory_mb" {
  description = "Memory of an instance in MB."
  type        = number
  default     = 512

  validation {
    condition     = contains([512, 2048, 4096], var.instance_memory_mb)
    error_message = "instance_memory_mb must be 512, 2048 or 4096."
  }
}

variable "maximum_instance_count" {
  description = "Maximum number of instances."
  type        = number
  default     = 40

  validation {
    condition     = var.maximum_instance_count >= 40 && var.maximum_instance_count <= 1000
    error_message = "maximum_instance_count must be 40 to 1000."
  }
}

variable "always_ready_instances" {
  description = "Number of always-ready instances for HTTP. 0 costs nothing while there are no calls."
  type        = number
  default     = 0

  validation {
    condition     = var.always_ready_instances >= 0 && var.always_ready_instances <= 20
    error_message = "always_ready_instances must be 0 to 20."
  }
}

variable "node_version" {
  description = "Major version of Node.js."
  type        = string
  default     = "22"

  validation {
    condition     = contains(["22", "24"], var.node_version)
    error_message = "node_version must be 22 or 24."
  }
}

variable "log_retention_days" {
  description = "Retention of logs and metrics in days."
  type        = number
  default     = 30

  validation {
    condition     = var.log_retention_days >= 30 && var.log_retention_days <= 730
    error_message = "log_retention_days must be 30 to 730."
  }
}

variable "log_analytics_workspace_resource_id" {
  description = "Existing Log Analytics workspace for logs and metrics, as a resource id. Empty: creates one."
  type        = string
  default     = ""

  validation {
    condition     = var.log_analytics_workspace_resource_id == "" || can(regex("(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.OperationalInsights/workspaces/[^/]+$", var.log_analytics_workspace_resource_id))
    error_message = "log_analytics_workspace_resource_id must be the resource id of a Log Analytics workspace."
  }
}

variable "diagnostic_settings_enabled" {
  description = "Whether all resource logs of storage, app, mail, App Configuration and network go to the workspace."
  type        = bool
  default     = false
}

variable "monitoring_public_network_access_enabled" {
  description = "Whether logs and metrics can be sent and read from public networks. False needs your Azure Monitor private link scope."
  type        = bool
  default     = true
}

variable "operator_email_addresses" {
  description = "Mail addresses for alerts about problems of the service itself. Empty: alerts fire, but no one is notified."
  type        = list(string)
  default     = []
}

variable "mail_enabled" {
  description = "Whether the service sends mail, through Communication Services with a domain that Azure manages."
  type        = bool
  default     = true
}

variable "mail_data_location" {
  description = "Geography in which mail data is stored."
  type        = string
  default     = "Europe"
}

variable "alert_owner_domains" {
  description = "Comma-separated mail domains whose addresses in owner tags receive alerts. Empty: owner tags are not used for alerts."
  type        = string
  default     = ""
}

variable "mail_per_minute" {
  description = "Maximum number of mails per minute. Empty: 5, the limit of Azure for the deployed domain."
  type        = string
  default     = ""
}

variable "mail_per_hour" {
  description = "Maximum number of mails per hour. Empty: 10, the limit of Azure for the deployed domain."
  type        = string
  default     = ""
}

variable "app_configuration_enabled" {
  description = "Whether settings can also come from an App Configuration store."
  type        = bool
  default     = false
}

variable "allowed_ip_ranges" {
  description = "Address ranges that may call the app, in CIDR notation: 203.0.113.0/24. Empty: everyone."
  type        = list(string)
  default     = []
}

variable "app_public_network_access_enabled" {
  description = "Whether the app can be called from public networks. False needs app_private_endpoint_enabled or your own private endpoint."
  type        = bool
  default     = true
}

variable "app_private_endpoint_enabled" {
  description = "Whether the app has a private endpoint. Needs network_enabled."
  type        = bool
  default     = false

  validation {
    condition     = !var.app_private_endpoint_enabled || var.network_enabled
    error_message = "app_private_endpoint_enabled needs network_enabled."
  }
}

variable "network_enabled" {
  description = "Whether storage, vault and App Configuration are reachable through private endpoints only."
  type        = bool
  default     = false
}

variable "nat_gateway_enabled" {
  description = "Whether the service calls vaults with one fixed public address, through a NAT gateway. Needs network_enabled without own subnets."
  type        = bool
  default     = false

  validation {
    condition     = !var.nat_gateway_enabled || (var.network_enabled && var.function_subnet_resource_id == "")
    error_message = "nat_gateway_enabled needs network_enabled, and no subnets of your own: their network has its own gateway."
  }
}

variable "function_subnet_resource_id" {
  description = "Existing subnet of the app, delegated to Microsoft.App/environments, as a resource id. Empty: creates a network."
  type        = string
  default     = ""

  validation {
    condition     = var.function_subnet_resource_id == "" || can(regex("(?i)/virtualNetworks/[^/]+/subnets/[^/]+$", var.function_subnet_resource_id))
    error_message = "function_subnet_resource_id must be the resource id of a subnet."
  }
}

variable "private_endpoint_subnet_resource_id" {
  description = "Existing subnet of the private endpoints, as a resource id. Set both subnets, or none."
  type        = string
  default     = ""

  validation {
    condition     = (var.private_endpoint_subnet_resource_id == "") == (var.function_subnet_resource_id == "")
    error_message = "Set both function_subnet_resource_id and private_endpoint_subnet_resource_id, or none."
  }
}

variable "private_dns_zones_enabled" {
  description = "Whether to create private DNS zones. False if a policy adds private endpoints to central zones."
  type        = bool
  default     = true
}

variable "private_dns_zone_resource_ids" {
  description = "Existing private DNS zones, as resource ids by endpoint: blob, table, queue, vault, configurationStores, sites. Null: creates zones."
  type = object({
    blob                = optional(string)
    table               = optional(string)
    queue               = optional(string)
    vault               = optional(string)
    configurationStores = optional(string)
    sites               = optional(string)
  })
  default = null

  validation {
    condition     = var.private_dns_zone_resource_ids == null || alltrue([for id in values(coalesce(var.private_dns_zone_resource_ids, {})) : id == null || can(regex("(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.Network/privateDnsZones/[^/]+$", id))])
    error_message = "private_dns_zone_resource_ids must be resource ids of private DNS zones."
  }
}

variable "network_address_prefix" {
  description = "Address range of the virtual network, at least a /25."
  type        = string
  default     = "10.20.0.0/24"

  validation {
    condition     = can(cidrsubnet(var.network_address_prefix, 1, 1))
    error_message = "network_address_prefix must be a range such as 10.20.0.0/24."
  }
}

variable "license_secret_name" {
  description = "Name of the secret in the service vault that contains the license. Empty: no license."
  type        = string
  default     = ""
}

variable "entra_api_client_id" {
  description = "Application id of the API registration whose access tokens of this tenant are accepted. Empty: none."
  type        = string
  default     = ""
}

variable "entra_api_scope" {
  description = "Required scope of access tokens of people. Empty: access_as_user."
  type        = string
  default     = ""
}

variable "further_entra_tenant_ids" {
  description = "Further tenants whose access tokens are accepted, for a multi-tenant registration."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.further_entra_tenant_ids : can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", id))])
    error_message = "further_entra_tenant_ids must hold GUIDs in lower case."
  }
}

variable "public_base_url" {
  description = "Public address of the service: https://secrets.example.com. Empty: the address of the app."
  type        = string
  default     = ""
}

variable "private_target_hosts" {
  description = "Addresses in the private network, as host:port, that single sign-on and sync may call. Empty: public addresses only."
  type        = string
  default     = ""
}

variable "handover_key_vault_url" {
  description = "Address of the handover vault for new secrets of applications: https://name.vault.azure.net. Empty: none."
  type        = string
  default     = ""
}

variable "events_enabled" {
  description = "Whether Event Grid notifies the service when a key vault of a monitored subscription is written or deleted between scans."
  type        = bool
  default     = false
}

variable "log_analytics_workspace_ids" {
  description = "GUIDs of the Log Analytics workspaces whose logs show who reads the vaults (PRO). Each needs logs/."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.log_analytics_workspace_ids : can(regex("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", id))])
    error_message = "log_analytics_workspace_ids must hold GUIDs in lower case."
  }
}

variable "telemetry_endpoint" {
  description = "Address of an OpenTelemetry collector: https://collector.example.com:4318. Empty: none."
  type        = string
  default     = ""

  validation {
    condition     = var.telemetry_endpoint == "" || can(regex("^https?://[^/]+", var.telemetry_endpoint))
    error_message = "telemetry_endpoint must be an address: https://collector.example.com:4318."
  }
}

variable "telemetry_headers_secret_name" {
  description = "Name of the secret in the service vault that contains the collector's headers, as name=value pairs. Empty: none."
  type        = string
  default     = ""
}

variable "additional_settings" {
  description = "Further app settings by name, such as schedules and limits (docs/deploy.md). Use key vault references for secrets."
  type        = map(string)
  default     = {}
}
