#include "core/step/step_name.h"

bool step_name_is_tmp(struct span name)
{
	return memmem(name.p, name.n, ".orbax-checkpoint-tmp", 21) != NULL;
}

bool step_name_number(struct span name, uint64_t *ret)
{
	size_t i = name.n;
	uint64_t v = 0;

	while (i > 0 && name.p[i - 1] >= '0' && name.p[i - 1] <= '9')
		i--;
	if (i == name.n || name.n - i > 19)
		return false;
	for (size_t k = i; k < name.n; k++)
		v = v * 10 + (name.p[k] - 0u - '0');
	*ret = v;
	return true;
}
