// Vulkan: which GPUs there are, and memory that one of NVIDIA's (or of any where a word is given) fills by a command.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

#define BYTES (1u << 20)
#define CALL(call) \
	do { \
		VkResult code = call; \
		if (code) { \
			printf("%s: error %d\n", #call, code); \
			exit(1); \
		} \
	} while (0)

static void fill(VkPhysicalDevice gpu)
{
	float priority = 1;
	VkDeviceQueueCreateInfo queues = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, NULL, 0, 0, 1, &priority};
	VkDeviceCreateInfo wanted = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queues};
	VkBufferCreateInfo shape = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = BYTES,
		.usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
	VkMemoryAllocateInfo amount = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
	VkCommandPoolCreateInfo pools = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
	VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
	VkPhysicalDeviceMemoryProperties types;
	VkMemoryRequirements needs;
	VkDevice device;
	VkQueue queue;
	VkBuffer buffer;
	VkDeviceMemory memory;
	VkCommandPool pool;
	VkCommandBuffer commands;
	unsigned *bytes;

	CALL(vkCreateDevice(gpu, &wanted, NULL, &device));
	vkGetDeviceQueue(device, 0, 0, &queue);
	CALL(vkCreateBuffer(device, &shape, NULL, &buffer));
	vkGetBufferMemoryRequirements(device, buffer, &needs);
	vkGetPhysicalDeviceMemoryProperties(gpu, &types);
	VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	unsigned type = 0;
	while (type < types.memoryTypeCount &&
		!(needs.memoryTypeBits >> type & 1 && (types.memoryTypes[type].propertyFlags & seen) == seen))
		type++;
	amount.memoryTypeIndex = type;
	amount.allocationSize = needs.size;
	CALL(vkAllocateMemory(device, &amount, NULL, &memory));
	CALL(vkBindBufferMemory(device, buffer, memory, 0));
	CALL(vkCreateCommandPool(device, &pools, NULL, &pool));
	VkCommandBufferAllocateInfo one = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, NULL, pool,
		VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
	CALL(vkAllocateCommandBuffers(device, &one, &commands));
	CALL(vkBeginCommandBuffer(commands, &begin));
	vkCmdFillBuffer(commands, buffer, 0, BYTES, 0x5eed1234);
	CALL(vkEndCommandBuffer(commands));
	VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
	CALL(vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE));
	CALL(vkQueueWaitIdle(queue));
	CALL(vkMapMemory(device, memory, 0, BYTES, 0, (void **)&bytes));
	for (unsigned n = 0; n < BYTES / sizeof *bytes; n++) {
		if (bytes[n] != 0x5eed1234) {
			printf("word %u is %x\n", n, bytes[n]);
			exit(1);
		}
	}
	printf("%u bytes are filled\n", BYTES);
	vkDestroyDevice(device, NULL);
}

int main(int argc, char **argv)
{
	VkApplicationInfo about = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_0};
	VkInstanceCreateInfo wanted = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &about};
	VkPhysicalDevice gpus[64];
	VkPhysicalDeviceProperties properties;
	VkInstance instance;
	unsigned count = 64, filled = 0;

	(void)argv;
	setvbuf(stdout, NULL, _IOLBF, 0);
	CALL(vkCreateInstance(&wanted, NULL, &instance));
	CALL(vkEnumeratePhysicalDevices(instance, &count, gpus));
	for (unsigned n = 0; n < count; n++) {
		vkGetPhysicalDeviceProperties(gpus[n], &properties);
		printf("Vulkan: %s\n", properties.deviceName);
		if (properties.vendorID == 0x10de || argc > 1) {
			fill(gpus[n]);
			filled++;
		}
	}
	return filled == 0;
}
